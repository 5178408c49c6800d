//! Commands by virtletctl, in a guest with our agent.

use anyhow::{Result, ensure};

use super::Exec;

/// `virtletctl exec`.
pub(super) fn runs_commands(exec: &Exec) -> Result<()> {
    for line in [
        "ctl exec $id -- sh -c 'echo out; echo err >&2; exit 3'",
        "ctl exec -s $id sh -c 'echo out; echo err >&2; exit 3'",
    ] {
        let ended = exec.shell(line)?;
        let told = ended.stdout == "out\n" && ended.stderr.starts_with("err\n");
        ensure!(told && ended.code == Some(3), "{line}: {ended:?}");
    }
    for (line, code) in
        [("ctl exec $id no-such-program", 127), ("ctl exec -s $id no-such-program", 127), ("ctl exec $id /tmp", 126)]
    {
        let ended = exec.shell(line)?;
        ensure!(ended.code == Some(code) && !ended.stderr.is_empty(), "{line}: {ended:?}");
    }
    exec.prints(
        "OURS=us ctl exec -e WORD=other -e OURS -w /tmp -u 1234:5678 $id sh -c 'echo $WORD $OURS; pwd; id -u; id -g'",
        "other us\n/tmp\n1234\n5678",
    )?;
    let refused = exec.shell("ctl exec -w tmp $id pwd")?;
    ensure!(refused.code == Some(1) && refused.stderr.contains("`tmp` is not absolute"), "{refused:?}");
    exec.prints("head -c 3000000 /dev/zero | ctl exec -i $id wc -c", "3000000")?;
    exec.prints("ctl exec $id head -c 3000000 /dev/zero | wc -c", "3000000")?;
    let terminal = "script -qec \"stty rows 33 cols 77; $(declare -f ctl); ctl exec $id -it -- sh -c 'until stty size | grep -q 33.77; do sleep 1; done; stty size; tty; exit 9'\" /dev/null";
    let ended = exec.shell(&format!("export -f ctl; export id; {terminal} </dev/null"))?;
    let told = ended.stdout.contains("33 77") && ended.stdout.contains("/dev/pts/");
    ensure!(told && ended.code == Some(9), "terminal: {ended:?}");

    // A key is a signal to what runs there, and not to virtletctl.
    let seen = exec.bed.dir.join("seen");
    let seen = seen.display();
    let key = format!("(until grep -q ^ready {seen} 2>/dev/null; do sleep 0.2; done; printf '\\003')");
    let waits = "trap \\\"echo caught; exit 6\\\" INT; echo ready; while :; do sleep 1; done";
    let terminal = format!("script -qefc \"$(declare -f ctl); ctl exec $id -it -- sh -c '{waits}'\" {seen}");
    let ended = exec.shell(&format!("export -f ctl; export id; {key} | {terminal}"))?;
    ensure!(ended.stdout.contains("caught") && ended.code == Some(6), "a key that interrupts: {ended:?}");
    Ok(())
}

/// `virtletctl cp`.
pub(super) fn copies_files(exec: &Exec) -> Result<()> {
    let dir = exec.bed.dir.join("cp");
    let begin = format!("mkdir -p {0} && cd {0} && ", dir.display());
    for (line, wanted) in [
        (
            "mkdir -p tree/in && head -c 300000 /dev/urandom >tree/in/file && ln -s in/file tree/link && echo made",
            "made",
        ),
        (
            "ctl cp tree $id:/tmp/there && ctl cp $id:/tmp/there back && cmp tree/in/file back/in/file && ls -R back",
            "back:\nin\n\nback/in:\nfile",
        ),
        ("ctl cp $id:/tmp/there - | tar -tf - | sort", "./there/\n./there/in/\n./there/in/file\n./there/link"),
        (
            "tar -cf - tree/in/file | ctl cp - $id:/tmp && ctl exec $id cat /tmp/tree/in/file | cmp - tree/in/file && echo same",
            "same",
        ),
        ("ctl cp tree/in/file $id:/tmp && ctl exec $id cat /tmp/file | cmp - tree/in/file && echo same", "same"),
        ("ctl cp $id:/tmp/there/in/file . && cmp file tree/in/file && echo same", "same"),
        ("ctl exec $id readlink /tmp/there/link", "in/file"),
        // Nothing that is there is touched but by its own name.
        (
            "mkdir -p here/in && echo ours >here/in/file && ctl cp $id:/tmp/there here && cat here/in/file && \
             cmp tree/in/file here/there/in/file && ls here",
            "ours\nin\nthere",
        ),
        ("ctl cp $id:/tmp/there/. here && cmp tree/in/file here/in/file && ls here", "in\nthere"),
    ] {
        exec.prints(&format!("{begin}{line}"), wanted)?;
    }
    for (line, why) in [
        ("ctl cp $id:/tmp/none .", "`tar` in the guest ended with exit code 1: tar: ./none: No such file"),
        ("ctl cp tree $id:/none/none", "/none"),
        ("ctl exec $id sh -c 'mv $(which tar) /tmp/tar' && ctl cp $id:/tmp/file .", "no `tar` in the guest"),
    ] {
        let ended = exec.shell(&format!("{begin}{line}"))?;
        ensure!(ended.code == Some(1) && ended.stderr.contains(why), "{line}: {ended:?}");
    }
    Ok(())
}
