//! Inspects the bucket by each server: an agent may connect to any of them, so all must have the
//! same bucket.

use crate::cli::access::Access;
use crate::core::REACH_MAX;
use crate::nats::{RefuseAlone, Server, ServerInfo};
use crate::store::nats::NatsStore;
use crate::store::nats::inspect::Inspection;
use crate::store::{StoreError, StoreErrorKind, StoreResult};
use crate::sys;

pub(crate) struct Inspected {
    /// The server as it is configured.
    pub(crate) server: Server,
    /// The INFO of the server, if there is a connection.
    pub(crate) info: Option<ServerInfo>,
    /// The bucket and the keys, or why an agent could not use them there.
    pub(crate) inspection: StoreResult<Inspection>,
    /// Why an agent uses another server instead, if there is one.
    pub(crate) fault: Option<&'static str>,
}

/// Inspects the bucket by each of the servers, beside each other, for [`REACH_MAX`] at most.
/// `store_at` returns the store of a server.
pub(crate) fn inspect(
    access: &Access,
    keys: &[&str],
    store_at: &(impl Fn(&Access) -> NatsStore + Sync),
) -> Vec<Inspected> {
    let deadline = sys::now().after(REACH_MAX);
    let refuses_alone = access.refuse_alone() == RefuseAlone::Always;
    sys::run_beside_each_other(access.servers.iter().map(|server| {
        move || {
            let alone = Access { servers: vec![server.clone()], ..access.clone() };
            let mut store = store_at(&alone);
            let inspection = store.inspect(keys, deadline);
            let info = store.client.server().cloned();
            let alone = info.as_ref().filter(|_| refuses_alone);
            let fault = alone.and_then(ServerInfo::not_one_cluster);
            Inspected { server: server.clone(), info, inspection, fault }
        }
    }))
}

/// Returns the inspection by the first server that has a bucket fit for an agent, with the remarks
/// and the servers without an answer of the others.
///
/// # Errors
///
/// One of them has no fit bucket, or another one than the first, or none can be reached.
pub(crate) fn merge(inspected: Vec<Inspected>, bucket: &str) -> StoreResult<Inspection> {
    let (mut merged, mut unreachable) = (None::<(Server, Inspection)>, Vec::new());
    let mut alone = Vec::new();
    for Inspected { server, info, inspection, fault } in inspected {
        if let Some(fault) = fault {
            alone.push(format!("server {server}: {fault}"));
            continue;
        }
        match inspection {
            Err(StoreError { kind: StoreErrorKind::Unreachable, text }) => {
                unreachable.push(why_silent(&server, info.as_ref(), &text));
            }
            Err(error) => return Err(error),
            Ok(inspection) => match &mut merged {
                None => merged = Some((server, inspection)),
                Some((first, found)) if found.created != inspection.created => {
                    return Err(StoreErrorKind::Unsafe.error(format!(
                        "{first} and {server} are not of one cluster: bucket {bucket} of one is \
                         not that of the other"
                    )));
                }
                Some((_, found)) => found.remarks.extend(inspection.remarks.into_iter().next()),
            },
        }
    }
    let kind = if alone.is_empty() { StoreErrorKind::Unreachable } else { StoreErrorKind::Unsafe };
    let faults = [alone, unreachable].concat();
    let Some((_, mut found)) = merged else { return Err(kind.error(faults.join("; "))) };
    found.warnings.extend(faults);
    Ok(found)
}

/// Says which server does not answer for the bucket, and what that means of one that is connected
/// to. No leader is chosen while a cluster begins, or most of its servers are down.
fn why_silent(server: &Server, info: Option<&ServerInfo>, text: &str) -> String {
    match info {
        Some(ServerInfo { jetstream: true, .. }) => format!(
            "{server}: JetStream does not answer, as in a cluster that has no leader yet or lost \
             most of its servers: {text}"
        ),
        Some(_) => format!("{server}: {text}"),
        // The text begins with the address.
        None => text.to_owned(),
    }
}
