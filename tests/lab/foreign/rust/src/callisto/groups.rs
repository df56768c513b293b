//! Members of groups of the classic protocol. A member of samsa's does not leave: its group misses it.

use std::collections::{BTreeSet, HashMap};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures::StreamExt;
use samsa::prelude::protocol::join_group::request::Protocol;
use samsa::prelude::protocol::{Assignment, MemberAssignment, PartitionAssignment};
use samsa::prelude::{
    BrokerAddress, BrokerConnection, ConsumerGroupBuilder, KafkaCode, ROUND_ROBIN_PROTOCOL, TcpConnection,
    commit_offset, fetch_offset, find_coordinator, heartbeat, join_group, leave_group, sync_group,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;

use super::client::{CLIENT_ID, CORRELATION_ID, PLAIN, Reported, addresses, assignment, from_own, write};
use crate::checks::{equal, wait_until};
use crate::given::Given;
use crate::record::{Record, full, values};

const PARTITIONS: i32 = 3;
const COUNT: i64 = 150;
const SESSION_MS: i32 = 6_000;
const NO_RETENTION: i64 = -1;

/// A member that reads in a task of its own, and commits what it has read when it reads on.
struct Member {
    task: JoinHandle<()>,
    received: UnboundedReceiver<Result<Record>>,
}

impl Member {
    async fn join(given: &Given) -> Result<Self> {
        let (group, topic) = (given.value("group")?.to_owned(), given.value("topic")?);
        let wanted = assignment(topic, PARTITIONS);
        let builder = ConsumerGroupBuilder::<TcpConnection>::new(addresses(given)?, group, wanted).await.reported()?;
        let member = builder.session_timeout_ms(SESSION_MS).build().await.reported().context("find the coordinator")?;
        let (sender, received) = unbounded_channel();
        let task = tokio::spawn(async move {
            let mut stream = Box::pin(member.into_stream());
            while let Some(batch) = stream.next().await {
                let found: Vec<Result<Record>> = match batch {
                    Ok(messages) => messages.map(|each| Ok(from_own(each))).collect(),
                    Err(error) => vec![Err(error).reported().context("a member")],
                };
                found.into_iter().for_each(|each| sender.send(each).unwrap_or_default());
            }
        });
        Ok(Self { task, received })
    }

    fn poll(&mut self) -> Result<Vec<Record>> {
        std::iter::from_fn(|| self.received.try_recv().ok()).collect()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Poll the members until so many records came; what each has read.
async fn poll(what: &str, members: &mut [&mut Member], count: usize) -> Result<Vec<Vec<Record>>> {
    let mut seen = vec![vec![]; members.len()];
    wait_until(what, async || {
        for (found, member) in seen.iter_mut().zip(members.iter_mut()) {
            found.extend(member.poll()?);
        }
        Ok(seen.iter().map(Vec::len).sum::<usize>() >= count)
    })
    .await?;
    Ok(seen)
}

async fn fill(given: &Given, begin: i64, count: i64) -> Result<Vec<Record>> {
    let written: Vec<Record> = (begin..begin + count).map(|number| full(number, PARTITIONS)).collect();
    write(given, PLAIN, given.value("topic")?, &written).await?;
    Ok(written)
}

fn partitions(records: &[Record]) -> BTreeSet<i32> {
    records.iter().map(|each| each.partition).collect()
}

/// A connection to the coordinator of the group.
async fn coordinator(given: &Given) -> Result<TcpConnection> {
    let connection = TcpConnection::new(addresses(given)?).await.reported()?;
    let found = find_coordinator(connection, CORRELATION_ID, CLIENT_ID, given.value("group")?).await.reported()?;
    equal("the coordinator's error", found.error_code, KafkaCode::None)?;
    let host = String::from_utf8(found.host.to_vec())?;
    TcpConnection::from_addr(vec![], BrokerAddress { host, port: found.port.try_into()? }).await.reported()
}

/// The offsets of the group.
async fn committed(given: &Given) -> Result<HashMap<i32, i64>> {
    let (group, wanted) = (given.value("group")?, assignment(given.value("topic")?, PARTITIONS));
    let found = fetch_offset(CORRELATION_ID, CLIENT_ID, group, coordinator(given).await?, &wanted).await.reported()?;
    equal("the error of offsets", found.error_code, KafkaCode::None)?;
    Ok(found.into_box_iter().map(|(_, each)| (each.partition_index, each.committed_offset)).collect())
}

async fn await_committed(given: &Given, each: i64) -> Result<()> {
    let wanted: HashMap<i32, i64> = (0..PARTITIONS).map(|number| (number, each)).collect();
    wait_until(&format!("offset {each} of each partition"), async || Ok(committed(given).await? == wanted)).await
}

/// One member, two, and one again after the other's session has ended. The partitions of a member are those whose
/// records it reads.
pub async fn share(given: &Given) -> Result<()> {
    let mut first = Member::join(given).await?;
    let written = fill(given, 0, COUNT).await?;
    let seen = poll("records of one member", &mut [&mut first], written.len()).await?;
    equal("what one member reads", values(&seen[0]), values(&written))?;
    await_committed(given, COUNT / i64::from(PARTITIONS)).await?;
    let mut second = Member::join(given).await?;
    let mut next = COUNT;
    loop {
        let written = fill(given, next, i64::from(PARTITIONS)).await?;
        next += i64::from(PARTITIONS);
        ensure!(next < 3 * COUNT, "no two shares");
        let seen = poll("records while members join", &mut [&mut first, &mut second], written.len()).await?;
        if seen.iter().all(|each| !each.is_empty()) {
            break;
        }
    }
    await_committed(given, next / i64::from(PARTITIONS)).await?;
    first.poll()?;
    second.poll()?;
    let written = fill(given, next, COUNT).await?;
    next += COUNT;
    let seen = poll("records of two members", &mut [&mut first, &mut second], written.len()).await?;
    equal("what two members read", values(&seen.concat()), values(&written))?;
    let (one, other) = (partitions(&seen[0]), partitions(&seen[1]));
    ensure!(one.is_disjoint(&other), "two members have {one:?} and {other:?}");
    equal("the shares", one.len().abs_diff(other.len()), 1)?;
    await_committed(given, next / i64::from(PARTITIONS)).await?;
    drop(first);
    let written = fill(given, next, COUNT).await?;
    let seen = poll("records of the one that stays", &mut [&mut second], written.len()).await?;
    equal("what the one that stays reads", values(&seen[0]), values(&written))
}

/// A member ends; the next one begins where the group stood.
pub async fn go_on(given: &Given) -> Result<()> {
    for round in 0..3 {
        let written = fill(given, round * COUNT, COUNT).await?;
        let mut member = Member::join(given).await?;
        let seen = poll(&format!("records of member {round}"), &mut [&mut member], written.len()).await?;
        equal(&format!("what member {round} reads"), values(&seen[0]), values(&written))?;
        await_committed(given, (round + 1) * COUNT / i64::from(PARTITIONS)).await?;
    }
    Ok(())
}

/// The requests of a group, one by one: join, sync, heartbeat, commit, leave; and what is refused.
pub async fn requests(given: &Given) -> Result<()> {
    let (group, topic) = (given.value("group")?, given.value("topic")?);
    let connection = coordinator(given).await?;
    let again = || connection.clone();
    let nobody = Bytes::from_static(b"");
    let protocols = vec![Protocol::new(ROUND_ROBIN_PROTOCOL, vec![topic])];
    let joined =
        join_group(again(), CORRELATION_ID, CLIENT_ID, group, SESSION_MS, SESSION_MS, nobody, "consumer", protocols)
            .await
            .reported()?;
    equal("the error of joining", joined.error_code, KafkaCode::None)?;
    let (member, generation) = (joined.member_id.clone(), joined.generation_id);
    equal("the generation", generation, 1)?;
    equal("the leader", &joined.leader, &member)?;
    equal("the protocol", &joined.protocol_name[..], ROUND_ROBIN_PROTOCOL.as_bytes())?;
    equal("the members", joined.members.iter().map(|each| &each.member_id).collect::<Vec<_>>(), vec![&member])?;
    let share = MemberAssignment {
        version: 3,
        partition_assignments: vec![PartitionAssignment::new(topic, vec![2, 0])],
        user_data: None,
    };
    let shares = vec![Assignment::new(member.clone(), share).reported()?];
    let synced =
        sync_group(again(), CORRELATION_ID, CLIENT_ID, group, generation, member.clone(), shares).await.reported()?;
    equal("the error of syncing", synced.error_code, KafkaCode::None)?;
    let given_share = &synced.assignment.partition_assignments[0];
    equal("the topic", &given_share.topic_name[..], topic.as_bytes())?;
    equal("the share", &given_share.partitions, &vec![2, 0])?;
    let beat = async |generation, member| -> Result<KafkaCode> {
        let found = heartbeat(again(), CORRELATION_ID, CLIENT_ID, group, generation, member).await.reported()?;
        Ok(found.error_code)
    };
    equal("a heartbeat", beat(generation, member.clone()).await?, KafkaCode::None)?;
    equal("an old generation", beat(generation - 1, member.clone()).await?, KafkaCode::IllegalGeneration)?;
    equal("no member", beat(generation, "nobody".into()).await?, KafkaCode::UnknownMemberId)?;
    equal("offsets before a commit", committed(given).await?, HashMap::from([(0, -1), (1, -1), (2, -1)]))?;
    let offsets = HashMap::from([((topic.to_owned(), 0), 41), ((topic.to_owned(), 2), 43)]);
    let by = member.clone();
    commit_offset(CORRELATION_ID, CLIENT_ID, group, again(), generation, by, offsets.clone(), NO_RETENTION)
        .await
        .reported()?;
    equal("offsets", committed(given).await?, HashMap::from([(0, 41), (1, -1), (2, 43)]))?;
    let left = leave_group(again(), CORRELATION_ID, CLIENT_ID, group, member.clone()).await.reported()?;
    equal("the error of leaving", left.error_code, KafkaCode::None)?;
    equal("a heartbeat of a member that left", beat(generation, member.clone()).await?, KafkaCode::UnknownMemberId)?;
    let late = commit_offset(CORRELATION_ID, CLIENT_ID, group, again(), generation, member, offsets, NO_RETENTION);
    ensure!(late.await.is_err(), "a member that left commits");
    equal("offsets at last", committed(given).await?, HashMap::from([(0, 41), (1, -1), (2, 43)]))
}
