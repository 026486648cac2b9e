//! What goes wrong between the two ends.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

/// What the other end sent that it must not send. The connection ends with it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProtocolError {
    /// A message says a length that none can have.
    #[error("a message says that it has {size} bytes; 16 to {max} are possible")]
    MessageSize {
        /// Bytes as the header says them, the header included.
        size: u32,
        /// The longest message that is taken.
        max: u32,
    },
    /// A message is neither a command nor a reply, or is the one where the other was due.
    #[error("a message has type {found}; {due} would be right")]
    MessageType {
        /// The type's bits.
        found: u32,
        /// Those that were due.
        due: u32,
    },
    /// A message is too short for what its command carries.
    #[error("command {command} came with {len} bytes; it has {least} at the least")]
    Payload {
        /// The command's number.
        command: u16,
        /// Bytes after the header.
        len: usize,
        /// Bytes that there must be.
        least: usize,
    },
    /// More descriptors came with a message than were offered to be taken, or they were cut off.
    #[error("a message came with more than {max} file descriptors")]
    Descriptors {
        /// The most that are taken.
        max: usize,
    },
    /// A reply that belongs to no command that was sent.
    #[error("a reply names message {id} and command {command}; message {due_id} and command {due_command} were due")]
    Reply {
        /// Its message identifier.
        id: u16,
        /// Its command.
        command: u16,
        /// The identifier of the command that was sent.
        due_id: u16,
        /// That command.
        due_command: u16,
    },
    /// The list of a region's capabilities leaves its reply, or does not advance.
    #[error("a region's capability at offset {offset} cannot be: its reply has {len} bytes")]
    Capability {
        /// Where the capability should be, from the start of the region's information.
        offset: usize,
        /// Bytes of the region's information.
        len: usize,
    },
    /// The two ends have no version in common.
    #[error("the other end speaks version {major}.{minor} of the protocol; 0.0 or 0.1 would be right")]
    Version {
        /// Its major version.
        major: u16,
        /// Its minor version.
        minor: u16,
    },
    /// The first command is not the version.
    #[error("the first command is {command}; 1, the version, would be right")]
    NoVersion {
        /// Its number.
        command: u16,
    },
    /// The capabilities in the version message cannot be read or make no connection.
    #[error("the other end's capabilities are unusable: {reason}")]
    Capabilities {
        /// What is wrong with them.
        reason: String,
    },
    /// What the reply says is not what the command was about.
    #[error("the reply to command {command} is about something else: {what} is {found:#x}; {due:#x} would be right")]
    Echo {
        /// The command's number.
        command: u16,
        /// The field.
        what: &'static str,
        /// What the reply says.
        found: u64,
        /// What the command said.
        due: u64,
    },
}

/// Why a connection was not made, or has ended.
#[derive(Debug, Error)]
pub enum VfioUserError {
    /// There is no server at that path, or the kernel refused.
    #[error("cannot connect to the vfio-user socket {path}: {source}")]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The other end did not answer, or did not take what was sent, in time.
    #[error("the other end of the vfio-user socket did not answer within {limit:?}: {what}")]
    Silent {
        /// What was waited for.
        what: &'static str,
        /// How long.
        limit: Duration,
    },
    /// The other end has closed the connection, or it was ended here.
    #[error("the vfio-user connection has ended: {what}")]
    Closed {
        /// What was tried.
        what: &'static str,
    },
    /// The kernel refused to move a message.
    #[error("the vfio-user socket failed: {what}: {source}")]
    Socket {
        /// What was tried.
        what: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The other end refused.
    #[error("the vfio-user server refused: {what}: errno {errno}")]
    Refused {
        /// What was asked of it.
        what: &'static str,
        /// Its reason, as an errno; 0 where it gave none.
        errno: i32,
    },
    /// The other end does not keep to the protocol.
    #[error("the other end of the vfio-user socket does not keep to the protocol: {what}: {source}")]
    Protocol {
        /// What was going on.
        what: &'static str,
        /// What it sent.
        source: ProtocolError,
    },
    /// The device is not one that can be driven.
    #[error("the vfio-user device cannot be driven: {reason}")]
    Device {
        /// What it lacks.
        reason: String,
    },
}
