"""Video files: frames by number or time, decoded in batches from an index of packets, and a writer.

`VideoFiles` reads many files, `VideoRows` makes their frames a column, and `VideoWriter` encodes frames. `PacketIndex`
says where the packets of a file are.
"""

from penstock.containers.video.files import VideoFiles
from penstock.containers.video.index import PacketIndex, packet_index
from penstock.containers.video.rows import VideoRows
from penstock.containers.video.writer import VideoWriter

__all__ = ["PacketIndex", "VideoFiles", "VideoRows", "VideoWriter", "packet_index"]
