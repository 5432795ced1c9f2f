# Prints each block of a Markdown text: a line "sh HOST ..." or "text", its lines behind a tab, and
# for a section "section NUMBER". The hosts are those that the paragraph above names behind "On".
/^## / {
    print "section " ($2 + 0)
}
/^```/ {
    if (inside) {
        inside = 0
    } else {
        inside = 1
        kind = substr($0, 4)
        hosts = ""
        if (kind == "sh" && match(paragraph, /On n[1-3][^:]*:$/)) {
            named = substr(paragraph, RSTART)
            for (number = 1; number <= 3; number++)
                if (named ~ ("n" number))
                    hosts = hosts " n" number
        }
        print kind hosts
    }
    next
}
inside {
    print "\t" $0
    next
}
/^$/ {
    ended = 1
    next
}
{
    paragraph = ended ? $0 : paragraph " " $0
    ended = 0
}
