"""Makes the Python code of the gRPC contract: ``python protos/generate.py [FOLDER]``.

It needs grpcio-tools in exactly the version below, which fixes the oldest runtime that the code
works with (protobuf 6.31.1). Without FOLDER the committed code in ``mlgo_gym/runners/grpc/_proto``
is replaced; with it, the same files are written below FOLDER.
"""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

GRPCIO_TOOLS = "1.76.0"
PROTOS = Path(__file__).resolve().parent
PACKAGE = "mlgo_gym/runners/grpc/_proto/v1"


def generate(folder: Path) -> None:
    """Write the package's ``model_runner_pb2*`` below ``folder``, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        *(sys.executable, "-m", "grpc_tools.protoc"),
        # The code's package does not follow the folders of the contract.
        f"--proto_path={PACKAGE}={PROTOS / 'mlgo_gym' / 'v1'}",
        f"--python_out={folder}",
        f"--pyi_out={folder}",
        f"{PACKAGE}/model_runner.proto",
    ]
    subprocess.run(command, check=True)


def installed_tools() -> str | None:
    """The version of grpcio-tools that is installed, if it is."""
    try:
        return metadata.version("grpcio-tools")
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    if installed_tools() != GRPCIO_TOOLS:
        sys.exit(
            f"protos: expected grpcio-tools {GRPCIO_TOOLS}, found {installed_tools()}; "
            f"run: pip install grpcio-tools=={GRPCIO_TOOLS}"
        )
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else PROTOS.parent)
