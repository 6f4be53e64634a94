from .assembler import Assembler, aassemble, assemble
from .stream import Stream, synthesize
