//! A process is killed, and its keeper lets go of what it holds only after that.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::{env, thread};

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tentpeg_driver::keeper::Keeper;

/// Set in a process that is the one to be killed.
const ROLE: &str = "TENTPEG_KEEPER_TEST_OWNER";

fn keeper() -> Keeper {
    Keeper::start(Command::new(env!("CARGO_BIN_EXE_tentpeg-keeper"))).unwrap()
}

/// Standard output is the descriptor that is kept; it is all that this process has of it.
fn owner() -> ! {
    let kept = keeper().keep(std::io::stdout().as_fd()).unwrap();
    eprintln!("kept");
    loop {
        thread::park();
        assert!(env::var_os(ROLE).is_some(), "{kept:?}");
    }
}

#[test]
fn a_killed_process_has_ended_before_its_keeper_lets_go() {
    if env::var_os(ROLE).is_some() {
        owner();
    }
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let test = "a_killed_process_has_ended_before_its_keeper_lets_go";
    let mut owner = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(ROLE, "1")
        .stdin(Stdio::null())
        .stdout(write)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(owner.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "kept"));
    owner.kill().unwrap();
    // Until the last writing end is closed, which the keeper has.
    let mut rest = Vec::new();
    File::from(read).read_to_end(&mut rest).unwrap();
    let pid = Pid::from_child(&owner);
    let ended =
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT).unwrap();
    assert!(ended.is_some(), "the keeper let go of it while the process was there");
    owner.wait().unwrap();
}

#[test]
fn what_is_released_in_order_is_closed_at_once_and_the_keeper_ends() {
    let (read, write): (OwnedFd, OwnedFd) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let keeper = keeper();
    let kept = keeper.keep(write.as_fd()).unwrap();
    File::from(write).write_all(b"x").unwrap();
    drop(kept);
    let mut rest = Vec::new();
    File::from(read).read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"x");
    drop(keeper);
}
