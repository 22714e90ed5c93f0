"""Lay files that describe an ARM processor below a root folder: python cpu_files.py ROOT.

qemu-user of Debian 12 shows programs the /proc/cpuinfo of this machine, which crashes torch's
library cpuinfo. oneDNN reads the register in /sys.
"""

import os
import sys
from pathlib import Path

_CPU = """processor\t: {}
Features\t: fp asimd aes pmull sha1 sha2 crc32 atomics fphp asimdhp asimdrdm asimddp
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: 0xd0c
CPU revision\t: 1

"""  # a Neoverse N1, as is the register


def main(root: Path) -> None:
    cpus = range(os.cpu_count() or 1)
    (root / "proc").mkdir(exist_ok=True)
    (root / "proc" / "cpuinfo").write_text("".join(map(_CPU.format, cpus)))
    for cpu in cpus:
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/regs/identification"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "midr_el1").write_text("0x00000000413fd0c1\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
