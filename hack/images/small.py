"""Images of one program each for the real node: what holds a pod's namespaces, and a shell to look around.

Both are Debian's statically linked busybox.
"""

import platform
import shutil
import tempfile
from pathlib import Path
from typing import Final

from hack.images.archive import Image, ImageSettings, layer_of, write

BUSYBOX: Final = "topogate.local/busybox:1"
_APPLETS: Final = ("cat", "env", "httpd", "id", "ls", "sh", "sleep", "stat", "test", "wget")


def busybox(archive: Path, name: str = BUSYBOX) -> Image:
    """A few of busybox's commands; sleeps without arguments. Needs the package busybox-static."""
    found = shutil.which("busybox")
    if found is None:
        raise FileNotFoundError(
            "busybox is not there: apt-get install --no-install-recommends busybox-static"
        )
    with tempfile.TemporaryDirectory() as folder:
        programs = Path(folder) / "root" / "bin"
        programs.mkdir(parents=True)
        shutil.copy(found, programs / "busybox")
        for applet in _APPLETS:
            (programs / applet).symlink_to("busybox")
        layer = Path(folder) / "layer.tar"
        layer_of(Path(folder) / "root", layer)
        settings = ImageSettings(environment={"PATH": "/bin"}, command=("/bin/sleep", "infinity"))
        return write(archive, name, layer, settings, platform.machine())
