"""The state of a position of a game: its columns, and what they say.

The state is a row of int64:

=======  =============================================================================================
0 to 3   file of the rook that may still castle: ours on the queen's side and king's side, theirs; or -1
4        file of the pawn that may be taken en passant, or -1
5, 6, 7  plies since a capture or a pawn's move; earlier occurrences; 1 for black to move
8        the transform that the frame says
9, 10    squares from and to of the move made (castling: king and rook), -1 past the end
11, 12   what it promotes to, 0 for nothing; its index in the policy as the frame turns it, or -1
=======  =============================================================================================

`games` fills states from frames, and `moves` from the state before. Squares are numbers `8 * rank + file`, as the side
to move sees them.
"""

from __future__ import annotations

CASTLE = 0
"""The first of four columns."""
EN_PASSANT = 4
CLOCK = 5
SEEN = 6
BLACK = 7
TRANSFORM = 8
FROM = 9
TO = 10
PROMOTES = 11
INDEX = 12
STATE = 13
"""Number of columns."""
