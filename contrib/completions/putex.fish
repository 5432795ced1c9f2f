# fish completion of putex: /usr/share/fish/vendor_completions.d/putex.fish
# Made from the table of the program, src/cli/table.rs, by
# PUTEX_REWRITE=1 cargo test --test completions

function __putex_runs -d 'Whether the command is one of these'
    set -l words (commandline -opc)
    set -l verb agent
    if contains -- "$words[2]" agent check finish timing help
        set verb $words[2]
    end
    contains -- $verb $argv
end

function __putex_word -d 'Whether the word of this number is typed'
    test (count (commandline -opc)) -eq $argv[1]
end

complete -c putex -f
complete -c putex -n '__putex_word 1' -a agent -d 'keep at most one copy of a service running (the default)'
complete -c putex -n '__putex_word 1' -a check -d 'show an agent\'s settings, and say whether they are right'
complete -c putex -n '__putex_word 1' -a finish -d 'stop the service if neither agent nor guard is there to'
complete -c putex -n '__putex_word 1' -a timing -d 'show what -r, -f, -c and --drift mean in seconds'
complete -c putex -n '__putex_word 1' -a help -d 'show the manual, or what is said of a topic'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a agent -d 'putex(8): all of the agent'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a theory -d 'putex(7): why at most one copy runs, and when not'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a config -d 'putex.conf(5): settings in a file'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a check -d 'the command'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a finish -d 'the command'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a help -d 'the command'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a timing -d 'R, F, C, and the times that follow from them'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a guard -d 'what acts when an agent dies, and by when'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a commands -d 'what start, stop and health check have to do'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a managers -d 'OpenRC, runit, s6, systemd, BusyBox init'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a environment -d 'variables that are read'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a files -d 'where things are kept'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a signals -d 'how an agent is ended'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a exit -d 'what the exit status says'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a messages -d 'what the log says, and what to do'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a examples -d 'of calls'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a tls -d 'encryption and certificates'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a bucket -d 'which buckets are refused, and rights of users'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a record -d 'what stands under the key'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a states -d 'what an agent does when'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a fencing -d 'how to use PUTEX_TERM'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a limits -d 'what can break the promise'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a caveats -d 'what to be careful with'
complete -c putex -n '__putex_runs agent check finish' -l config -r -F -d 'what is given neither here nor in the environment is in this file'
complete -c putex -n '__putex_runs agent check finish' -l nats -x -d 'keep the lock in NATS JetStream, by these servers'
complete -c putex -n '__putex_runs agent check finish' -l context -x -d 'take what is not given otherwise from this context of the nats command'
complete -c putex -n '__putex_runs agent check finish' -l user -x -d 'log in as this user, unless a URL names one'
complete -c putex -n '__putex_runs agent check finish' -l password-file -r -F -d 'the user\'s password is the line of this file'
complete -c putex -n '__putex_runs agent check finish' -l auth-token-file -r -F -d 'log in with the token that is the line of this file'
complete -c putex -n '__putex_runs agent check finish' -l nkey -r -F -d 'log in with the nkey whose seed is in this file'
complete -c putex -n '__putex_runs agent check finish' -l creds -r -F -d 'log in with the JWT and the nkey in this file'
complete -c putex -n '__putex_runs agent check finish' -l tlsca -r -F -d 'who may sign a server\'s certificate'
complete -c putex -n '__putex_runs agent check finish' -l tlscert -r -F -d 'certificate that is shown to a server that asks'
complete -c putex -n '__putex_runs agent check finish' -l tlskey -r -F -d 'key of that certificate'
complete -c putex -n '__putex_runs agent check finish' -l tlsfirst -d 'begin with TLS before the server says anything'
complete -c putex -n '__putex_runs agent check finish' -l inbox-prefix -x -d 'subject below which replies are asked for'
complete -c putex -n '__putex_runs agent check finish' -l js-domain -x -d 'JetStream domain that the bucket is in'
complete -c putex -n '__putex_runs agent check finish' -l js-api-prefix -x -d 'subject below which the API of JetStream answers'
complete -c putex -n '__putex_runs agent check finish' -l dir -x -a '(__fish_complete_directories)' -d 'keep the lock in a directory: agents on this host only'
complete -c putex -n '__putex_runs agent check finish' -l bucket -x -d 'bucket that holds the key'
complete -c putex -n '__putex_runs agent check finish' -l key -x -d 'key that is the lock'
complete -c putex -n '__putex_runs agent check finish' -l token -x -d 'who this agent is; no two agents have one token'
complete -c putex -n '__putex_runs agent check finish' -l start -x -a '(__fish_complete_command)' -d 'asserts that the service runs here'
complete -c putex -n '__putex_runs agent check finish' -l stop -x -a '(__fish_complete_command)' -d 'asserts that the service does not run here'
complete -c putex -n '__putex_runs agent check finish' -l healthcheck -x -a '(__fish_complete_command)' -d 'succeeds if the service is, or could be, fit here'
complete -c putex -n '__putex_runs agent check finish' -l last-resort -x -a '(__fish_complete_command)' -d 'makes an end of a service that stop could not stop in time'
complete -c putex -n '__putex_runs agent check finish' -l watchdog -r -F -d 'resets this host when all else fails; with :required never without'
complete -c putex -n '__putex_runs agent check finish' -l realtime -d 'run before all that has no real-time priority, locked in memory'
complete -c putex -n '__putex_runs agent check finish' -l replicas -x -d 'servers that keep a copy of a bucket made by putex'
complete -c putex -n '__putex_runs agent check finish' -l allow-memory -d 'accept a bucket that its server forgets when it restarts'
complete -c putex -n '__putex_runs agent check finish' -l notify-fd -x -d 'descriptor that is written a line when this agent stands by'
complete -c putex -n '__putex_runs agent check finish' -l syslog -d 'log to the syslog daemon of this host instead of stderr'
complete -c putex -n '__putex_runs agent check finish' -s v -l verbose -d 'say more'
complete -c putex -n '__putex_runs agent check finish' -s q -l quiet -d 'say less: -q warnings and errors, -qq errors'
complete -c putex -n '__putex_runs agent check finish timing' -s r -l renewal -x -d 'R, from one renewal to the next: milliseconds, or with ms, s, m'
complete -c putex -n '__putex_runs agent check finish timing' -s f -l failures -x -d 'F, renewals that must be missed before a takeover'
complete -c putex -n '__putex_runs agent check finish timing' -s c -l confirmations -x -d 'C, renewals between a takeover and the start'
complete -c putex -n '__putex_runs agent check finish timing' -l drift -x -d 'how far the rate of a host\'s clock may be off'
complete -c putex -n '__putex_runs check' -l connect -d 'ask the servers too; nothing is written or made there'
complete -c putex -n '__putex_runs agent check finish timing help' -s h -l help -d 'show this help'
complete -c putex -n '__putex_runs agent check finish timing help' -s V -l version -d 'show the version'
