"""tritonclient.http.aio: the asyncio client."""

import asyncio

import numpy as np
import pytest
import tritonclient.http.aio as aio
from tritonclient.utils import InferenceServerException

from triton_calls import make_input


def run(authority, body):
    async def main():
        async with aio.InferenceServerClient(authority, conn_limit=16) as client:
            return await body(client)

    return asyncio.run(main())


def test_every_read_call(authority):
    async def body(client):
        assert await client.is_server_live() and await client.is_server_ready() and await client.is_model_ready("gate")
        assert (await client.get_server_metadata())["name"] == "decomposek"
        assert (await client.get_model_metadata("exact"))["inputs"][0]["shape"] == [-1, 4]
        assert (await client.get_model_config("exact"))["max_batch_size"] == 256
        assert (await client.get_inference_statistics("exact"))["model_stats"][0]["name"] == "exact"
        assert any(entry["name"] == "exact" for entry in await client.get_model_repository_index())
        assert await client.get_system_shared_memory_status() == []

    run(authority, body)


@pytest.mark.parametrize("coding", [None, "gzip", "deflate"])
def test_200_requests_at_once_get_their_own_answers(authority, coding):
    async def one(client, i):
        rows = 1 + i % 5
        result = await client.infer("exact", [make_input(np.full((rows, 4), i), "FP32")], request_id=str(i), request_compression_algorithm=coding, response_compression_algorithm=coding)
        assert (result.as_numpy("logits") == [[18 * i, 22 * i, 26 * i]] * rows).all() and result.get_response()["id"] == str(i)

    async def body(client):
        await asyncio.gather(*(one(client, i) for i in range(200)))

    run(authority, body)


def test_refusals_raise(authority):
    async def body(client):
        for name, shape in (("nobody", (1, 4)), ("exact", (1, 5))):
            with pytest.raises(InferenceServerException):
                await client.infer(name, [make_input(np.ones(shape), "FP32")])

    run(authority, body)


def test_cancelled_requests_leave_nothing_behind(authority, daemon):
    async def body(client):
        cancelled = 0
        for i in range(24):
            task = asyncio.create_task(client.infer("gate", [make_input(np.ones((200, 7168)), "FP32")]))
            await asyncio.sleep(i % 6 * 0.004)  # before, while and after it is sent; some may be answered already
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                cancelled += 1
        assert cancelled > 0

    run(authority, body)
    from support.daemon import eventually

    eventually(lambda: daemon.metric("decomposek_in_flight_requests") == 0, what="no request in flight")
