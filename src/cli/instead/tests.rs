use crate::cli::tests::refused;

#[test]
fn a_word_or_option_of_another_program_is_refused_with_that_of_putex() {
    for (line, says) in [
        ("--healtcheck true", "--healtcheck: no such option; the nearest is --healthcheck; see"),
        ("chek", "chek: no such command; the nearest is check; see putex help"),
        ("release -f db", "-f: not an option of putex release; write --force --holder WHO"),
        ("h locks web", "h: no such command; for a lock write putex lock h COMMAND; see putex"),
        ("timing --lease 60", "--lease: not an option of putex timing, but of put"),
        ("finish -s h", "-s: not an option of putex finish; write --nats URL[,URL]"),
        ("status nats://h", "nats://h: write --nats nats://h"),
        ("lock nats://h true", "nats://h: write --nats nats://h"),
        ("status --nats h --bucket KV_locks", "KV_locks is the stream; write its bucket, locks"),
        ("lease release db", "lease release: a lease is not given back, it runs out; for a lock"),
        ("lok path", "lok: no such command; the nearest is lock"),
        ("status -q web", "-q: not an option of putex status, but of agent, check, finish and oth"),
        ("lokc -n db true", "lokc: no such command; the nearest is lock; see putex help"),
        ("lokc db true x", "lokc: no such command; the nearest is lock"),
        ("stauts --nats nats://h", "stauts: no such command; the nearest is status"),
        ("unlock db", "unlock: no such command; write putex release"),
        ("stop web", "stop: no such command; write systemctl stop putex@KEY; see putex help"),
        ("check web", "web: unexpected argument; write --key web"),
        ("check --key web web", "web: unexpected argument; write options alone, as in"),
        ("help nats", "nats: no such topic; see putex help store"),
        ("grab --ttl 30 db", "--ttl: no such option; write --for TIME"),
        ("lock --ttl 30 db true", "--ttl: no such option; write -r TIME and -f COUNT; the lock"),
        ("release --ttl 30 db", "--ttl: no such option; see putex release --help"),
        ("status --format json", "--format: no such option; write --json"),
        ("--server nats://h", "--server: no such option; write --nats URL[,URL]"),
        ("--password x", "--password: no such option; the nearest is --password-file"),
        ("agent --for 5m", "--for: not an option of putex agent, but of grab, lease, pause"),
        ("agent -s nats://h", "-s: not an option of putex agent; write --nats URL[,URL]"),
        ("grab --token t a", "--token: not an option of putex grab; write --as WHO"),
        ("lock --name n true", "--name: not an option of putex lock; write the name without it"),
        (
            "help lease claim",
            "claim: unexpected argument; one topic at a time; write putex help le",
        ),
        ("put --lease l k -5", "-5: no such option; write -- before a word that begins with -"),
        ("check putex.conf", "putex.conf: unexpected argument; write --config putex.conf"),
        ("agent help", "help: unexpected argument; write putex agent --help"),
        ("lock --cacert c db true", "--cacert: no such option; write --tlsca FILE"),
        ("release --all db", "--all: no such option; see putex release --help"),
        ("pause --for web", "--for: web: is not a time"),
        ("grab --for db", "--for: db: is not a time"),
        ("status --print web", "--print: web: write holder, host or term"),
        ("restart web", "restart: no such command; write systemctl restart putex@KEY"),
        ("campaign web", "campaign: no such command; write putex lease claim"),
        ("agent --ttl 30", "--ttl: no such option; write -r TIME and -f COUNT"),
        ("lock --endpoints h:1 db true", "--endpoints: no such option; write --nats URL[,URL]"),
        ("help tutorial", "tutorial: no such topic; see contrib/tutorial/README.md"),
    ] {
        let (text, status) = refused(line);
        assert_eq!(status, 64, "{line}");
        assert!(text.contains(says) && !text.contains('\n'), "{line}: {text}");
    }
}
