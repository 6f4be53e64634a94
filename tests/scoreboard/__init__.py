"""Which laws released assemblers break: `python tests/scoreboard --help`. Not part of the test run; its peers are in `requirements.txt`."""
