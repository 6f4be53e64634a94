"""All rows of the table."""

from __future__ import annotations

import assembling
import cassettes
import decoding
import fuzzing
import recording
import starting

ROWS = (*decoding.ROWS, *assembling.ROWS, *cassettes.ROWS, *starting.ROWS, *fuzzing.ROWS, *recording.ROWS)
