//! Parser of the command line.

use crate::case::Case;
use crate::support::clock::now;

/// Cases that are played at once.
const JOBS: usize = 6;

/// The options of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) each: bool,
    pub(crate) list: bool,
    pub(crate) without_cgroup: bool,
    pub(crate) jobs: usize,
    sample: Option<usize>,
    offset: usize,
    /// Parts of the names of cases: each of them stands in it.
    words: Vec<String>,
}

impl Order {
    /// Reads the arguments.
    ///
    /// # Errors
    ///
    /// What makes no sense.
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Order, String> {
        let mut order = Order {
            each: false,
            list: false,
            without_cgroup: false,
            jobs: JOBS,
            sample: None,
            offset: now().subsec_nanos() as usize,
            words: Vec::new(),
        };
        while let Some(argument) = arguments.next() {
            let mut number = || {
                let text = arguments.next();
                let number = text.and_then(|text| text.parse::<usize>().ok());
                number.ok_or(format!("{argument}: a number is missing"))
            };
            match argument.as_str() {
                "--each" => order.each = true,
                "--list" => order.list = true,
                "--without-cgroup" => order.without_cgroup = true,
                "--jobs" => order.jobs = number()?.max(1),
                "--sample" => order.sample = Some(number()?),
                "--offset" => order.offset = number()?,
                flag if flag.starts_with('-') => return Err(format!("{flag}: no flag of these")),
                word => order.words.push(word.to_owned()),
            }
        }
        Ok(order)
    }

    /// Returns the cases that are asked for, and says which sample it is.
    pub(crate) fn choose(&self, mut cases: Vec<Case>) -> Vec<Case> {
        cases.retain(|case| {
            let name = case.to_string();
            self.words.iter().all(|word| name.contains(word))
        });
        let Some(sample) = self.sample else {
            return cases;
        };
        let step = cases.len().div_ceil(sample.max(1)).max(1);
        let offset = self.offset % step;
        println!("syscalls: --sample {sample} --offset {offset}");
        cases.into_iter().skip(offset).step_by(step).collect()
    }
}
