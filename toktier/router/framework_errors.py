"""What FastAPI and Starlette raise, answered in the router's one shape of errors.

A document that does not fit is told by the place and the kind of each fault: never with the value, which may be a
prompt. Not here: the table of codes (`refusals`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from toktier.errors import ToktierError
from toktier.labels import shown
from toktier.router.refusals import Refusal, Refused, as_refused

LOG: Final = logging.getLogger("toktier.router")
_CODES = {404: Refusal.NOT_FOUND, 405: Refusal.METHOD_NOT_ALLOWED}
_MAX_FAULTS = 5

Handler = Callable[[Request, Any], Coroutine[Any, Any, Response]]


def exception_handlers() -> dict[int | type[Exception], Handler]:
    """For `FastAPI(exception_handlers=…)`. What nobody foresaw is answered, and raised on for the guard to log."""
    return {
        Refused: _raised,
        ToktierError: _raised,
        HTTPException: _http,
        RequestValidationError: _validation,
        Exception: _raised,
    }


async def _raised(request: Request, error: Exception) -> Response:
    status, body, headers = as_refused(error)
    if isinstance(error, Refused | ToktierError):  # others are raised on, and the guard tells of them
        name = request.scope.get("state", {}).get("request_id", "-")
        LOG.info("%s refused: %s", name, error.code.value if isinstance(error, Refused) else error.code)
    response = Response(body, status, media_type="application/json")
    response.raw_headers.extend(headers)
    return response


async def _http(request: Request, error: HTTPException) -> Response:
    code = _CODES.get(error.status_code, Refusal.BAD_REQUEST if error.status_code < 500 else Refusal.INTERNAL)
    said = {
        Refusal.NOT_FOUND: f"there is no route {shown(request.url.path)}",
        Refusal.METHOD_NOT_ALLOWED: f"{shown(request.url.path)} does not take {shown(request.method)}",
    }.get(code, "the request cannot be read")
    remedy = "GET /openapi.json lists the routes" if code is not Refusal.BAD_REQUEST else None
    headers = [(k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in (error.headers or {}).items()]
    return await _raised(request, Refused(code, said, remedy=remedy, headers=headers))


async def _validation(request: Request, error: RequestValidationError) -> Response:
    faults = error.errors()
    told = [f"{shown('.'.join(map(str, fault['loc'])))}: {shown(str(fault['type']))}" for fault in faults[:_MAX_FAULTS]]
    more = f", and {len(faults) - _MAX_FAULTS} more" if len(faults) > _MAX_FAULTS else ""
    place = [str(part) for part in faults[0]["loc"][1:]] if faults else []
    return await _raised(
        request,
        Refused(
            Refusal.BAD_REQUEST,
            f"the request does not fit: {', '.join(told)}{more}",
            param=shown(".".join(place)) if place else None,
        ),
    )
