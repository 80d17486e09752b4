"""Build backend (PEP 517): a wheel of the package and of its extension, with the C compiler alone.

Two builds of the same sources by the same compiler are the same bytes: files are in the order of
their names, with the time of SOURCE_DATE_EPOCH (else 1980), and no path of the build is in them.
"""

from __future__ import annotations

import base64
import hashlib
import os
import pathlib
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile

HERE = pathlib.Path(__file__).resolve().parent.parent
#: The header's folder: in the repository, or in a source distribution.
INCLUDES = [HERE / "include", HERE.parent.parent / "include"]
FLAGS = [
    "-O2", "-g0", "-std=gnu11", "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-shared", "-fPIC",
    "-fvisibility=hidden", "-fno-strict-aliasing", "-fstack-protector-strong",
    "-Wl,-z,relro,-z,now,-z,noexecstack,-z,text", "-Wl,--build-id=none",
]


def _project() -> dict[str, str]:
    """Returns the plain keys of pyproject.toml: older Pythons have no parser for it."""
    text = (HERE / "pyproject.toml").read_text()
    return dict(re.findall(r'^([a-z-]+) = "(.*)"$', text, re.MULTILINE))


def _include() -> pathlib.Path:
    for folder in INCLUDES:
        if (folder / "tompion/private/abi.h").exists():
            return folder
    raise SystemExit(f"tompion: expected include/tompion beside {HERE}, found none")


def compile_extension(folder: pathlib.Path) -> pathlib.Path:
    """Compiles the extension for this Python into a folder, and returns its file."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    output = folder.resolve() / f"_tompion{suffix}"
    sources = sorted(source.name for source in (HERE / "src").glob("*.c"))
    compiler = shlex.split(os.environ.get("CC", "cc"))
    python = sysconfig.get_paths()["include"]
    prefix = f"-ffile-prefix-map={HERE}=."
    command = [*compiler, *FLAGS, prefix, "-isystem", python, f"-I{_include()}", *sources, "-o", str(output), "-ldl"]
    result = subprocess.run(command, cwd=HERE / "src", capture_output=True, text=True)
    if result.returncode != 0:
        raise SystemExit(f"tompion: {' '.join(command)}\n{result.stderr}")
    sys.stderr.write(result.stderr)
    return output


def _tag() -> str:
    """Returns the wheel's tag: this Python on this kind of machine."""
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    suffix = sysconfig.get_config_var("EXT_SUFFIX") or ""
    threaded = "t" if re.search(r"cpython-\d+t", suffix) else ""
    machine = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return f"{version}-{version}{threaded}-{machine}"


def _metadata(project: dict[str, str]) -> str:
    lines = [
        "Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {project['version']}",
        f"Summary: {project['description']}", f"License: {project['license']}",
        f"Requires-Python: {project['requires-python']}",
    ]
    return "\n".join(lines) + "\n"


def _contents(project: dict[str, str], extension: pathlib.Path) -> dict[str, bytes]:
    """Returns the wheel's files without their list."""
    files = {f"tompion/{extension.name}": extension.read_bytes()}
    for source in sorted((HERE / "tompion").rglob("*")):
        if source.is_file() and source.suffix in {".py", ".pyi", ".typed"}:
            files[source.relative_to(HERE).as_posix()] = source.read_bytes()
    info = f"tompion-{project['version']}.dist-info"
    wheel = f"Wheel-Version: 1.0\nGenerator: tompion\nRoot-Is-Purelib: false\nTag: {_tag()}\n"
    files[f"{info}/METADATA"] = _metadata(project).encode()
    files[f"{info}/WHEEL"] = wheel.encode()
    return files


def _record(files: dict[str, bytes], name: str) -> bytes:
    lines = []
    for path, data in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(data)}")
    return ("\n".join([*lines, f"{name},,"]) + "\n").encode()


def build_wheel(
    wheel_directory: str, config_settings: object = None, metadata_directory: str | None = None
) -> str:
    """Builds the wheel into a folder, and returns its name."""
    project = _project()
    with tempfile.TemporaryDirectory() as scratch:
        files = _contents(project, compile_extension(pathlib.Path(scratch)))
    record = f"tompion-{project['version']}.dist-info/RECORD"
    files[record] = _record(files, record)
    name = f"tompion-{project['version']}-{_tag()}.whl"
    moment = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800))[:6]
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in sorted(files.items()):
            entry = zipfile.ZipInfo(path, moment)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if path.endswith(".so") else 0o644) << 16
            wheel.writestr(entry, data)
    return name


def get_requires_for_build_wheel(config_settings: object = None) -> list[str]:
    """Nothing but a C compiler is needed."""
    return []


def main(arguments: list[str]) -> None:
    """`backend.py wheel DIR` builds a wheel, `backend.py extension DIR` the extension alone."""
    what, folder = arguments
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    if what == "wheel":
        print(build_wheel(folder))
    else:
        print(compile_extension(pathlib.Path(folder)).name)


if __name__ == "__main__":
    main(sys.argv[1:])
