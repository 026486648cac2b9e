use std::fs::File;
use std::io::Write;
use std::thread;

use proptest::prelude::*;

use super::*;
use crate::vfio_user::wire::command;

const SOON: Duration = Duration::from_millis(20);
const LATE: Duration = Duration::from_secs(60);

fn pair() -> (Socket, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (Socket::new(ours).unwrap(), theirs)
}

fn receive(socket: &Socket, limit: Duration) -> Result<Option<Message>, VfioUserError> {
    socket.receive(&Wait::new("the first byte", limit), ("the rest", limit))
}

#[test]
fn a_message_with_a_descriptor_arrives_whole() {
    let (one, theirs) = pair();
    let other = Socket::new(theirs).unwrap();
    let file = File::open("/dev/null").unwrap();
    let header = Header::command(7, command::DMA_MAP, 5);
    one.send(header, &[b"ab", b"cde"], Some(file.as_fd()), &Wait::new("sending", LATE)).unwrap();
    let message = receive(&other, LATE).unwrap().unwrap();
    assert_eq!((message.header, message.payload.as_slice(), message.descriptors.len()), (header, &b"abcde"[..], 1));
    drop(one);
    assert!(receive(&other, LATE).unwrap().is_none(), "closed between two messages");
}

#[test]
fn a_message_in_pieces_is_put_together() {
    let (socket, mut theirs) = pair();
    let header = Header::command(7, command::REGION_READ, 40);
    let bytes = [header.as_bytes(), &[9; 40]].concat();
    let sender = thread::spawn(move || {
        for byte in bytes {
            theirs.write_all(&[byte]).unwrap();
            thread::yield_now();
        }
        theirs
    });
    let message = receive(&socket, LATE).unwrap().unwrap();
    assert_eq!((message.header, message.payload), (header, vec![9; 40]));
    drop(sender.join().unwrap());
}

#[test]
fn a_silent_end_is_not_waited_for_for_ever() {
    let (socket, mut theirs) = pair();
    let silent = receive(&socket, SOON).unwrap_err();
    assert!(matches!(silent, VfioUserError::Silent { what: "the first byte", limit: SOON }), "{silent}");
    theirs.write_all(&[0; 3]).unwrap();
    let silent = receive(&socket, SOON).unwrap_err();
    assert!(matches!(silent, VfioUserError::Silent { what: "the rest", .. }), "{silent}");
    // Nor one that does not take what is sent.
    let header = Header::command(7, command::REGION_WRITE, MAX_PAYLOAD);
    let silent =
        (0..10_000).find_map(|_| socket.send(header, &[&[0; MAX_PAYLOAD]], None, &Wait::new("sending", SOON)).err());
    assert!(matches!(silent, Some(VfioUserError::Silent { what: "sending", .. })), "{silent:?}");
}

#[test]
fn an_end_in_the_middle_of_a_message_is_told() {
    for len in [3, HEADER_LEN, HEADER_LEN + 4] {
        let (socket, mut theirs) = pair();
        let bytes = [Header::command(7, command::REGION_READ, 16).as_bytes(), &[0; 16]].concat();
        theirs.write_all(&bytes[..len]).unwrap();
        drop(theirs);
        let closed = receive(&socket, LATE).unwrap_err();
        assert!(matches!(closed, VfioUserError::Closed { what: "the rest" }), "{len}: {closed}");
    }
    let (socket, theirs) = pair();
    drop(theirs);
    let sent = socket.send(Header::command(1, 1, 0), &[], None, &Wait::new("sending", LATE));
    assert!(matches!(sent, Err(VfioUserError::Closed { what: "sending" })), "{sent:?}");
}

#[test]
fn more_descriptors_than_were_offered_are_an_error() {
    let (socket, theirs) = pair();
    let file = File::open("/dev/null").unwrap();
    let files = [file.as_fd(); MAX_DESCRIPTORS + 1];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS + 1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
    sendmsg(&theirs, &[IoSlice::new(&[0; 16])], &mut control, SendFlags::NOSIGNAL).unwrap();
    let error = receive(&socket, LATE).unwrap_err();
    let source = ProtocolError::Descriptors { max: MAX_DESCRIPTORS };
    assert!(matches!(&error, VfioUserError::Protocol { source: found, .. } if *found == source), "{error}");
}

#[test]
fn closing_waits_for_the_other_end() {
    let (socket, mut theirs) = pair();
    theirs.write_all(&[0; 10_000]).unwrap();
    assert!(!socket.close(&Wait::new("the end", SOON)), "the other end is still there");
    drop(theirs);
    assert!(socket.close(&Wait::new("the end", LATE)));
}

proptest! {
    /// Whatever bytes come, they are messages, an end, or an error.
    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200), size in 0u32..64) {
        let (socket, mut theirs) = pair();
        let mut bytes = bytes;
        if let Some(field) = bytes.get_mut(4..8) {
            field.copy_from_slice(&size.to_ne_bytes());
        }
        theirs.write_all(&bytes).unwrap();
        drop(theirs);
        let mut taken = 0;
        while let Ok(Some(message)) = receive(&socket, LATE) {
            prop_assert_eq!(message.header.message_size as usize, HEADER_LEN + message.payload.len());
            taken += HEADER_LEN + message.payload.len();
        }
        prop_assert!(taken <= bytes.len());
    }
}
