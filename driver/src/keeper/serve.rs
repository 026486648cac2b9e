//! The keeper's own process.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, dup};
use rustix::stdio::{stdin, stdout};

use super::wire::{REQUEST_LEN, Request, Socket};

/// All that `tentpeg-keeper` does: standard input is the socket to the process that is served, standard output a
/// descriptor that says when that has ended. Returns then; what is held is closed with it.
///
/// # Errors
/// It was started by somebody else, with other descriptors.
pub fn run() -> io::Result<()> {
    ignore_requests_to_end();
    close_inherited();
    let socket = Socket::new(dup(stdin())?);
    let served = dup(stdout())?;
    // Known by its answer: nothing else that could be standard input takes a message like it.
    socket.send(&0u32.to_le_bytes(), None)?;
    serve(&socket, &served)
}

/// Until the process that is served has ended.
pub(super) fn serve(socket: &Socket, served: &OwnedFd) -> io::Result<()> {
    let mut held: HashMap<u32, OwnedFd> = HashMap::new();
    let mut last = 0u32;
    let mut open = true;
    loop {
        let mut looks = vec![PollFd::new(served, PollFlags::IN)];
        if open {
            looks.push(PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN));
        }
        match poll(&mut looks, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        }
        let happened: Vec<bool> = looks.iter().map(|look| !look.revents().is_empty()).collect();
        // A dying process closes its end of the socket among its other files, in no order; it has ended after the last.
        if happened.first() == Some(&true) {
            return Ok(());
        }
        if happened.get(1) != Some(&true) {
            continue;
        }
        let mut bytes = [0; REQUEST_LEN];
        let (len, descriptor) = match socket.receive(&mut bytes) {
            Ok((0, _)) | Err(_) => {
                open = false;
                continue;
            }
            Ok(received) => received,
        };
        let answer = match (bytes.get(..len).and_then(Request::decode), descriptor) {
            (Some(Request::Keep), Some(descriptor)) => {
                last = last.wrapping_add(1);
                held.insert(last, descriptor);
                last
            }
            (Some(Request::Release(number)), None) => {
                held.remove(&number);
                number
            }
            // Nobody of ours asks like that.
            _ => continue,
        };
        // Who does not hear it has gone, or will see that nothing came.
        let _ = socket.send(&answer.to_le_bytes(), None);
    }
}

/// A service is asked to end by a signal to all of its processes: this one ends after the one that it serves.
fn ignore_requests_to_end() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
        // SAFETY: no handler is installed, and this is the only thread.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Closes what the process that is served had open without close-on-exec when it started this one: nobody asked for that
/// to be kept.
fn close_inherited() {
    let (first, last, flags): (libc::c_uint, libc::c_uint, libc::c_uint) = (3, libc::c_uint::MAX, 0);
    // SAFETY: nothing in this process has opened any of them yet. A kernel before Linux 5.9 closes none.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
}
