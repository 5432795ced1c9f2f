//! Records of commands under locks: lines of one file, so that their order is the order in which
//! they were written.

use std::collections::HashMap;
use std::time::Duration;

use crate::support::clock::At;

/// A command that records: its id is `$0`. It ends when the file `end-ID` is there.
pub(crate) const WORKER: &str = r#"
note() { read -r up _ </proc/uptime; echo "$1 $0 $up $2" >>"$D/record"; }
[ "$1" != stubborn ] || trap "" TERM
note begin "$$ $PUTEX_TERM $PUTEX_MODE$PUTEX_SLOT $PUTEX_KEY"
while [ ! -e "$D/end-$0" ]; do sleep 0.01; note beat; done
note end"#;

/// A command that records, and ends after `$1` beats with the status `$2`.
pub(crate) const SHORT_WORKER: &str = r#"
note() { read -r up _ </proc/uptime; echo "$1 $0 $up $2" >>"$D/record"; }
note begin "$$ $PUTEX_TERM $PUTEX_MODE$PUTEX_SLOT $PUTEX_KEY"
left=$1
while [ "$left" -gt 0 ]; do left=$((left - 1)); sleep 0.01; note beat; done
note end
exit "$2""#;

/// A command that has held a lock.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) id: String,
    pub(crate) pid: u32,
    pub(crate) term: u64,
    /// `exclusive`, `shared`, or `slots` with the number of the slot.
    pub(crate) mode: String,
    pub(crate) name: String,
    /// The number of its first line and of its last one.
    lines: (usize, usize),
    /// When it wrote its last line, rounded down to 10 ms.
    pub(crate) last_at: At,
    pub(crate) begun_at: At,
}

impl Held {
    fn conflicts(&self, other: &Held) -> bool {
        let is_in = |a: &str, b: &str| a == b || a.starts_with(&format!("{b}/"));
        let overlaps = is_in(&self.name, &other.name) || is_in(&other.name, &self.name);
        let both_shared = self.mode == "shared" && other.mode == "shared";
        let has_slots = |held: &Held| held.mode.starts_with("slots");
        let other_slots = has_slots(self)
            && has_slots(other)
            && self.name == other.name
            && self.mode != other.mode;
        !both_shared && !other_slots && overlaps
    }
}

/// Reads a record.
///
/// # Panics
///
/// When a line is not one that a worker writes.
pub(crate) fn read(record: &str) -> Vec<Held> {
    let (mut found, mut places): (Vec<Held>, HashMap<&str, usize>) = Default::default();
    // The last line may be half written.
    let whole = record.rfind('\n').map_or("", |end| &record[..end]);
    for (line, text) in whole.lines().enumerate() {
        let words: Vec<&str> = text.split(' ').collect();
        let [what, id, up, rest @ ..] = &words[..] else { panic!("a line of no worker: {text}") };
        let at = Duration::from_secs_f64(up.parse().expect("a number"));
        if let ("begin", [pid, term, mode, name]) = (*what, rest) {
            places.insert(id, found.len());
            found.push(Held {
                id: (*id).to_owned(),
                pid: pid.parse().expect("a number"),
                term: term.parse().expect("a number"),
                mode: (*mode).to_owned(),
                name: (*name).to_owned(),
                lines: (line, line),
                last_at: at,
                begun_at: at,
            });
        } else {
            let own = &mut found[*places.get(id).expect("it has begun")];
            (own.lines.1, own.last_at) = (line, at);
        }
    }
    found
}

/// Describes commands that ran beside others and must not, and those that ran in another order
/// than that of their terms: each with one of the others of the same name and mode.
pub(crate) fn faults(held: &[Held]) -> Vec<String> {
    let mut found = Vec::new();
    // Of the commands that have begun with the same name and mode: the last to end, and the one
    // with the highest term.
    let mut before: HashMap<(&str, &str), (&Held, &Held)> = HashMap::new();
    for second in held {
        for (last, highest) in before.values().filter(|(one, _)| one.conflicts(second)) {
            if second.lines.0 < last.lines.1 {
                found.push(format!("beside each other: {last:?} {second:?}"));
            }
            if highest.term >= second.term {
                found.push(format!("not in order: {highest:?} {second:?}"));
            }
        }
        let (last, highest) =
            before.entry((&second.name, &second.mode)).or_insert((second, second));
        if last.lines.1 < second.lines.1 {
            *last = second;
        }
        if highest.term < second.term {
            *highest = second;
        }
    }
    found
}

#[test]
fn a_record_shows_commands_that_ran_beside_each_other_or_out_of_order() {
    let begin = |id: &str, term: u64, mode: &str, name: &str| {
        format!("begin {id} 1.00 7 {term} {mode} {name}\n")
    };
    let show = |record: &str| faults(&read(record)).len();
    let (a, b) = (begin("a", 1, "exclusive", "x"), begin("b", 2, "shared", "x/y"));
    assert_eq!(show(&format!("{a}beat a 1.00 \nend a 1.01 \n{b}beat b 1.02 \n")), 0);
    assert_eq!(show(&format!("{a}{b}beat a 1.00 \nbeat b 1.02 \n")), 1);
    assert_eq!(show(&format!("{b}end b 1.00 \n{a}end a 1.02 \n")), 1);
    let beside = begin("c", 3, "exclusive", "xy") + &begin("d", 4, "shared", "x");
    assert_eq!(show(&format!("{b}{beside}beat d 1.00 \nbeat c 1.01 \nbeat b 1.02 \nhalf")), 0);
    let slot = |id, slot: &str| begin(id, 5, &format!("slots{slot}"), "x");
    assert_eq!(
        show(&format!("{}{}beat f 1.00 \nend e 1.01 \n", slot("e", "0"), slot("f", "1"))),
        0
    );
    assert_eq!(
        show(&format!("{}{}beat f 1.00 \nend e 1.01 \n", slot("e", "1"), slot("f", "1"))),
        2
    );
}
