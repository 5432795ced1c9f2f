//! Measurements while the load goes on: times of renewals, and the resources that processes use.

use std::fmt;
use std::time::Duration;

use putex::core::Instant;

use crate::counters::Counters;
use crate::support::clock::{At, ms, now};
use crate::support::process::{proc_sum, processor_time};
use crate::support::server::Server;

/// The resources that the processes have used so far.
pub(crate) struct Reading {
    at: At,
    own_time: Duration,
    servers: Vec<OfServer>,
}

struct OfServer {
    time: Duration,
    resident_kib: u64,
    written_bytes: u64,
}

impl Reading {
    /// Reads the counters of this process and of the servers that run.
    ///
    /// # Errors
    ///
    /// When one of them has ended.
    pub(crate) fn take(servers: &[Server]) -> Result<Reading, String> {
        let own_time = processor_time(std::process::id())?;
        let of_server = |server: &Server| -> Result<OfServer, String> {
            Ok(OfServer {
                time: processor_time(server.id())?,
                resident_kib: proc_sum(server.id(), "status", &["VmRSS:"])?,
                written_bytes: proc_sum(server.id(), "io", &["write_bytes:"])?,
            })
        };
        let running = servers.iter().filter(|server| server.is_started());
        let servers = running.map(of_server).collect::<Result<_, _>>()?;
        Ok(Reading { at: now(), own_time, servers })
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Duration = self.servers.iter().map(|server| server.time).sum();
        write!(f, "used so far: {servers:.1?} by the servers, {:.1?} here", self.own_time)
    }
}

/// A row of the table.
pub(crate) struct Window {
    name: String,
    seconds: f64,
    renewals: u32,
    renewals_peak: u32,
    reads: u32,
    /// p50, p99 and the longest.
    times: [Duration; 3],
    late: Duration,
    own_time: Duration,
    server_times: Vec<Duration>,
    resident_kib: Vec<u64>,
    written_bytes: u64,
    losses: u32,
    takes: u32,
    unanswered: u32,
}

impl Window {
    /// The head of the table. Times are in ms; CPU in percent of one processor and RSS in MiB,
    /// of each server; `peak` is of 100 ms; `late` is the p99 of how late an agent runs.
    pub(crate) const HEAD: &str = "                renewals/s peak reads/s    p50    p99    max   \
                                   late own-CPU server-CPU    RSS  KiB/s lost takes unanswered";

    pub(crate) fn new(
        name: &str,
        counters: &Counters,
        since: Instant,
        before: &Reading,
        after: &Reading,
    ) -> Window {
        let times = &counters.renewal_times;
        let pairs = || before.servers.iter().zip(&after.servers);
        let written = pairs().map(|(before, after)| after.written_bytes - before.written_bytes);
        Window {
            name: name.to_owned(),
            seconds: (after.at - before.at).as_secs_f64(),
            renewals: counters.renewals.total(since),
            renewals_peak: counters.renewals.peaks(since).1,
            reads: counters.reads.total(since),
            times: [times.percentile(0.5), times.percentile(0.99), times.max()],
            late: counters.delays.percentile(0.99),
            own_time: after.own_time - before.own_time,
            server_times: pairs().map(|(before, after)| after.time - before.time).collect(),
            resident_kib: after.servers.iter().map(|server| server.resident_kib).collect(),
            written_bytes: written.sum(),
            losses: counters.losses.total(since),
            takes: counters.takes.total(since),
            unanswered: counters.unanswered.total(since),
        }
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = |count: u32| f64::from(count) / self.seconds;
        let percent = |time: Duration| 100.0 * time.as_secs_f64() / self.seconds;
        let [p50, p99, max] = self.times.map(ms);
        let cpu: Vec<_> =
            self.server_times.iter().map(|time| format!("{:.0}", percent(*time))).collect();
        let resident: Vec<_> =
            self.resident_kib.iter().map(|kib| (kib / 1024).to_string()).collect();
        let written = self.written_bytes as f64 / 1024.0 / self.seconds;
        write!(
            f,
            "{:15} {:10.1} {:4} {:7.1} {p50:6.1} {p99:6.1} {max:6.1} {:6.1} {:7.0} {:>10} {:>6} \
             {written:6.0} {:4} {:5} {:10}",
            self.name,
            rate(self.renewals),
            self.renewals_peak,
            rate(self.reads),
            ms(self.late),
            percent(self.own_time),
            cpu.join("/"),
            resident.join("/"),
            self.losses,
            self.takes,
            self.unanswered
        )
    }
}
