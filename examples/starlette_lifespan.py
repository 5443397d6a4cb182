"""Jobs inside a Starlette application: started and drained with it.

Needs `starlette`, and `httpx` for the calls at the end. With a server: `uvicorn examples.starlette_lifespan:app`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import UUID

from attrs import frozen

from rota import HandlerRegistry, Health, JobContext, Manual, Scheduler, Succeeded
from rota_backends.inprocess import InProcessBackend

try:
    import httpx
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route
except ImportError as error:
    raise SystemExit(f"{error}; this example needs: pip install starlette httpx") from None

handlers = HandlerRegistry()


@frozen
class Thumbnail:
    image: str


@handlers.register("thumbnail")
def make_thumbnail(ctx: JobContext, payload: Thumbnail) -> Succeeded:
    """A sync handler runs in a thread and does not block requests."""
    return Succeeded(records_processed=len(payload.image))


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncGenerator[None]:
    # Leaving the block drains: no new run is claimed, and running handlers have drain_timeout to end (LEASE-5).
    async with Scheduler(InProcessBackend(), handlers, drain_timeout=timedelta(seconds=20)) as scheduler:
        await scheduler.schedule(make_thumbnail.job("thumbnails", Manual(), Thumbnail("default.png")))
        app.state.scheduler = scheduler
        yield


async def upload(request: Request) -> JSONResponse:
    scheduler: Scheduler = request.app.state.scheduler
    run_id = await make_thumbnail.trigger(scheduler, "thumbnails", Thumbnail(request.path_params["image"]))
    return JSONResponse({"run": str(run_id)}, status_code=202)


async def run(request: Request) -> JSONResponse:
    scheduler: Scheduler = request.app.state.scheduler
    found = await scheduler.wait(UUID(request.path_params["run_id"]), timeout=timedelta(seconds=10))
    return JSONResponse({"state": found.state.value, "records": found.records_processed})


async def health(request: Request) -> JSONResponse:
    scheduler: Scheduler = request.app.state.scheduler
    report = await scheduler.health()
    checks = {check.name: check.detail for check in report.checks}
    return JSONResponse(
        {"status": report.status.value, **checks}, status_code=503 if report.status is Health.DOWN else 200
    )


app = Starlette(
    routes=[
        Route("/images/{image}", upload, methods=["POST"]),
        Route("/runs/{run_id}", run),
        Route("/health", health),
    ],
    lifespan=lifespan,
)


async def main() -> None:
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://example.org")
    async with app.router.lifespan_context(app), client:  # as a server would run the application
        accepted = await client.post("/images/cat.png")
        assert accepted.status_code == 202
        found = await client.get(f"/runs/{accepted.json()['run']}")
        assert found.json() == {"state": "succeeded", "records": 7}
        assert (await client.get("/health")).json()["status"] == "ok"
        print("accepted, run, and healthy; now the application leaves and drains")


if __name__ == "__main__":
    asyncio.run(main())
