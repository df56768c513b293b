//! What a program was started with.

use std::collections::HashMap;

use anyhow::{Context, Result};

/// The bootstrap servers, and values by their names.
pub struct Given {
    pub servers: Vec<String>,
    values: HashMap<String, String>,
}

impl Given {
    /// Of the arguments `host:port,...`, then `name=value` ones.
    pub fn parse(arguments: &[String]) -> Result<Self> {
        let (servers, named) = arguments.split_first().context("HOST:PORT,... is missing")?;
        let values = named.iter().map(|each| {
            let (name, value) = each.split_once('=').with_context(|| format!("{each} is no NAME=VALUE"))?;
            Ok((name.to_owned(), value.to_owned()))
        });
        Ok(Self { servers: servers.split(',').map(str::to_owned).collect(), values: values.collect::<Result<_>>()? })
    }

    /// A value that a program needs.
    pub fn value(&self, name: &str) -> Result<&str> {
        self.optional(name).with_context(|| format!("{name}=... is missing"))
    }

    pub fn optional(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }
}
