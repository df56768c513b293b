"""The admin client of aiokafka, call by call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from tests.lab.foreign.checks import fresh
from tests.lab.foreign.python import groups
from tests.lab.foreign.python.clients import Aiokafka
from tests.lab.foreign.python.records import read, topic_of
from tests.lab.foreign.served import Served

WAIT_S = 60
COUNT = 200
PAUSE_S = 0.05


def with_admin(run: Callable[[AIOKafkaAdminClient, Served], Awaitable[None]]) -> Callable[[Served], None]:
    async def call(served: Served) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=served.bootstrap)
        await admin.start()
        try:
            await run(admin, served)
        finally:
            await admin.close()

    return lambda served: asyncio.run(call(served))


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a condition; TimeoutError when it does not come true."""
    async with asyncio.timeout(WAIT_S):
        while not await is_so():
            await asyncio.sleep(PAUSE_S)


async def topics(admin: AIOKafkaAdminClient, served: Served) -> None:
    topic = fresh("topic")
    made = await admin.create_topics([NewTopic(topic, 2, 3)])
    assert [error for _, error, *_ in made.topic_errors] == [0]
    await admin.create_partitions({topic: NewPartitions(5)})

    async def has_5() -> bool:
        (found,) = await admin.describe_topics([topic])
        return [len(each["replicas"]) for each in found["partitions"]] == [3] * 5

    async def is_gone() -> bool:
        return topic not in await admin.list_topics()

    await until(has_5)
    await admin.delete_topics([topic])
    await until(is_gone)


async def configs(admin: AIOKafkaAdminClient, served: Served) -> None:
    topic = await asyncio.to_thread(topic_of, served, 1)
    (altered,) = await admin.alter_configs(
        [ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "1234567"})]
    )
    assert altered.resources[0][0] == 0
    (found,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    assert {name: value for name, value, *_ in found.resources[0][4]}["retention.ms"] == "1234567"


async def groups_and_offsets(admin: AIOKafkaAdminClient, served: Served) -> None:
    client, group = Aiokafka(), fresh("group")
    topic = await asyncio.to_thread(topic_of, served, groups.PARTITIONS)

    def use_group() -> None:
        groups.write(client, served, topic, 0)
        with client.reader(served.bootstrap, {"group.id": group, **groups.classic(client, "range")}) as reader:
            reader.subscribe(topic)
            read(reader, COUNT)
            reader.commit()

    await asyncio.to_thread(use_group)
    (found,) = await admin.describe_consumer_groups([group])
    assert found.groups[0][1] == group
    assert (group, "consumer") in {(each[0], each[1]) for each in await admin.list_consumer_groups()}
    offsets = await admin.list_consumer_group_offsets(group)
    partitions = [TopicPartition(topic, number) for number in range(groups.PARTITIONS)]
    assert {each: at.offset for each, at in offsets.items()} == dict.fromkeys(partitions, COUNT // groups.PARTITIONS)


async def records(admin: AIOKafkaAdminClient, served: Served) -> None:
    topic = await asyncio.to_thread(topic_of, served, groups.PARTITIONS)
    await asyncio.to_thread(groups.write, Aiokafka(), served, topic, 0)
    partition = TopicPartition(topic, 0)
    assert await admin.delete_records({partition: RecordsToDelete(before_offset=20)}) == {partition: 20}


async def cluster(admin: AIOKafkaAdminClient, served: Served) -> None:
    found = await admin.describe_cluster()
    assert sorted(each["node_id"] for each in found["brokers"]) == [1, 2, 3]
    assert found["controller_id"] in (1, 2, 3)


CHECKS = {
    "admin: create, describe and delete topics, more partitions": with_admin(topics),
    "admin: describe and alter configs of a topic": with_admin(configs),
    "admin: list and describe groups, list their offsets": with_admin(groups_and_offsets),
    "admin: delete records": with_admin(records),
    "admin: describe the cluster": with_admin(cluster),
}
