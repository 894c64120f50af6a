"""The server: ``uvicorn server.app:app``, or ``python -m server.app``."""

from __future__ import annotations

import uvicorn
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation

from .environment import InliningRules

app = create_app(
    InliningRules,
    CallToolAction,
    CallToolObservation,
    env_name="inlining_rules",
    max_concurrent_envs=4,
)


def main(host: str = "0.0.0.0", port: int = 8000) -> None:  # noqa: S104 - of a container
    uvicorn.run(app, host=host, port=port)


if __name__ == "__main__":
    main()
