//! What checks of both clients need: comparing, and waiting for a condition.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

const AWAIT_MAX: Duration = Duration::from_secs(60);
const LOOK_AT: Duration = Duration::from_millis(50);
const SHOWN_MAX: usize = 600;

/// An error when two values differ.
pub fn equal<T: PartialEq + Debug>(what: &str, got: T, wanted: T) -> Result<()> {
    if got != wanted {
        bail!("{what}: {}, not {}", short(&got), short(&wanted));
    }
    Ok(())
}

/// Returns when `holds` does; an error of its own, or one after a minute.
pub async fn wait_until(what: &str, mut holds: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + AWAIT_MAX;
    while !holds().await? {
        if Instant::now() > end {
            bail!("no {what} within {AWAIT_MAX:?}");
        }
        tokio::time::sleep(LOOK_AT).await;
    }
    Ok(())
}

/// A value in a message.
pub fn short(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
