use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;

use rustix::pipe::{PipeFlags, pipe_with};

use super::serve::serve;
use super::wire::{REQUEST_LEN, Request, Socket};
use super::*;

#[test]
fn requests_are_read_as_they_were_written() {
    for request in [Request::Keep, Request::Release(0), Request::Release(u32::MAX)] {
        assert_eq!(Request::decode(&request.encode()), Some(request));
    }
    for wrong in [&[][..], &[0; 4], &[0; 6], &[2, 0, 0, 0, 0], &[0, 1, 0, 0, 0]] {
        assert_eq!(Request::decode(wrong), None, "{wrong:?}");
    }
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let error = Keeper::start(Command::new("/nowhere/tentpeg-keeper")).unwrap_err().to_string();
    assert!(error.contains("/nowhere/tentpeg-keeper") && error.contains("install tentpeg-keeper"), "{error}");
}

#[test]
fn a_program_that_is_none_is_an_error() {
    let error = Keeper::start(Command::new("true")).unwrap_err();
    assert!(matches!(error, KeeperError::Silent { .. }), "{error}");
}

/// A keeper in a thread, and what ends it: closing the other end of a pipe stands for the end of the process.
fn threaded() -> (Socket, OwnedFd, thread::JoinHandle<io::Result<()>>) {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let (served, end) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let keeper = thread::spawn(move || serve(&Socket::new(theirs), &served));
    (Socket::new(ours), end, keeper)
}

/// The reading end of a pipe whose writing end somebody is to keep.
fn descriptor() -> (std::fs::File, OwnedFd) {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    (std::fs::File::from(read), write)
}

/// Whether every writing end of the pipe is closed, at once.
fn is_closed(read: &std::fs::File) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut look = [PollFd::new(read, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut look, Some(&now)).unwrap();
    look[0].revents().contains(PollFlags::HUP)
}

#[test]
fn what_is_kept_stays_open_until_it_is_released_or_the_process_has_ended() {
    let (socket, end, keeper) = threaded();
    let (mut first, kept) = descriptor();
    socket.send(&Request::Keep.encode(), Some(kept.as_fd())).unwrap();
    let number = socket.number(PATIENCE).unwrap();
    drop(kept);
    let (second, kept) = descriptor();
    socket.send(&Request::Keep.encode(), Some(kept.as_fd())).unwrap();
    assert_ne!(socket.number(PATIENCE).unwrap(), number);
    drop(kept);
    assert!(!is_closed(&first) && !is_closed(&second));
    socket.send(&Request::Release(number).encode(), None).unwrap();
    assert_eq!(socket.number(PATIENCE).unwrap(), number);
    assert!(is_closed(&first) && !is_closed(&second));
    assert_eq!(first.read(&mut [0]).unwrap(), 0);
    // The socket's end alone is not the process's.
    drop(socket);
    thread::yield_now();
    assert!(!is_closed(&second) && !keeper.is_finished());
    drop(end);
    keeper.join().unwrap().unwrap();
    assert!(is_closed(&second));
}

#[test]
fn nonsense_is_passed_over() {
    let (socket, _end, _keeper) = threaded();
    let (read, kept) = descriptor();
    for wrong in [&[7; REQUEST_LEN][..], &[0; 9], &[1], &Request::Keep.encode()] {
        socket.send(wrong, None).unwrap();
    }
    // With a descriptor where none belongs, which must not stay.
    socket.send(&Request::Release(1).encode(), Some(kept.as_fd())).unwrap();
    drop(kept);
    let (_, kept) = descriptor();
    socket.send(&Request::Keep.encode(), Some(kept.as_fd())).unwrap();
    socket.number(PATIENCE).unwrap();
    assert!(is_closed(&read));
}
