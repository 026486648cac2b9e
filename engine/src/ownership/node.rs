//! Who this host is: a UUID that is the same after every restart, and a name for messages.
//!
//! The UUID is configured, or derived from the machine's own identifier (machine-id(5)), which must not be given away:
//! HMAC-SHA256 with the machine-id as the key over [`APPLICATION`], its first 16 bytes made a UUID of version 4. That is
//! what `sd_id128_get_machine_app_specific` does, so that an operator can check it by
//! `systemd-id128 machine-id --app-specific=6a4e6483f95240da89c8235c4d9449cc`. (A UUID of version 5 would hash the
//! machine-id with SHA-1 and no key, and no tool would show the same.)
//!
//! Machines that were cloned with their machine-id are one node to everybody else, and so are containers that were given
//! their host's: there the UUID is to be configured.

use std::path::{Path, PathBuf};
use std::{fs, io};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use thiserror::Error;
use uuid::{Builder, Uuid};

/// What sets Tentpeg's identifier of a machine apart from other applications'.
pub const APPLICATION: Uuid = Uuid::from_u128(0x6a4e6483_f952_40da_89c8_235c4d9449cc);

const MACHINE_ID: &str = "/etc/machine-id";
const HOSTNAME: &str = "/proc/sys/kernel/hostname";
/// The most bytes that are read of either file.
const MOST: usize = 256;

/// Why this host does not know who it is. Host: each names what mends it.
#[derive(Debug, Error)]
pub enum NodeError {
    /// There is no machine-id.
    #[error(
        "this host has no identifier: {} cannot be read ({source}): configure the node's UUID, or run systemd-machine-id-setup",
        path.display()
    )]
    NoMachineId {
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// There is one that is none yet, as in the image of a system that has not been started.
    #[error(
        "this host has no identifier: {} is {}: configure the node's UUID, or run systemd-machine-id-setup",
        path.display(), found
    )]
    NotMachineId {
        /// The file.
        path: PathBuf,
        /// What stands in it, the first characters.
        found: String,
    },
    /// Caller: the configured UUID is the nil UUID, which is nobody.
    #[error(
        "the configured UUID of the node is {}, which is nobody: leave it away, or take one by uuidgen",
        Uuid::nil()
    )]
    Nil,
}

/// This host, as the label and the reservations of its devices name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    uuid: Uuid,
    name: String,
}

impl Node {
    /// This host, with the UUID that is configured, else one derived from its machine-id.
    ///
    /// # Errors
    /// [`NodeError`]: none is configured and there is no machine-id, or the one that is configured is nil.
    pub fn of_this_host(configured: Option<Uuid>) -> Result<Self, NodeError> {
        Self::read(configured, Path::new(MACHINE_ID), Path::new(HOSTNAME))
    }

    fn read(configured: Option<Uuid>, machine_id: &Path, hostname: &Path) -> Result<Self, NodeError> {
        let uuid = match configured {
            Some(uuid) if uuid.is_nil() => return Err(NodeError::Nil),
            Some(uuid) => uuid,
            None => derived(read_machine_id(machine_id)?),
        };
        Ok(Self { uuid, name: read_name(hostname).unwrap_or_else(|| uuid.to_string()) })
    }

    /// Its UUID: the label's owner, and the Host Identifier of its reservations.
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// Its hostname, for messages; the UUID where it has none. It identifies nobody.
    pub fn name(&self) -> &str {
        &self.name
    }
}

fn read_machine_id(path: &Path) -> Result<Uuid, NodeError> {
    let text = fs::read_to_string(path).map_err(|source| NodeError::NoMachineId { path: path.to_owned(), source })?;
    let text = text.trim_end();
    // Exactly 32 digits: what Uuid reads is more than what machine-id(5) allows.
    let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match Uuid::try_parse(text) {
        Ok(uuid) if digits && !uuid.is_nil() => Ok(uuid),
        _ => {
            let found = match text {
                "" => "empty".to_owned(),
                text => format!("'{}'", text.chars().take(40).collect::<String>().escape_debug()),
            };
            Err(NodeError::NotMachineId { path: path.to_owned(), found })
        }
    }
}

fn derived(machine_id: Uuid) -> Uuid {
    // A key of any length will do.
    let mut mac = match Hmac::<Sha256>::new_from_slice(machine_id.as_bytes()) {
        Ok(mac) => mac,
        Err(_) => unreachable!("HMAC takes keys of every length (RFC 2104, 2)"),
    };
    mac.update(APPLICATION.as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&mac.finalize().into_bytes()[..16]);
    Builder::from_random_bytes(bytes).into_uuid()
}

fn read_name(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let name: String = text.trim().chars().filter(|character| !character.is_control()).take(MOST).collect();
    (!name.is_empty() && name != "(none)").then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(machine_id: Option<&str>, hostname: Option<&str>, configured: Option<Uuid>) -> Result<Node, NodeError> {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str, text: Option<&str>| {
            let path = folder.path().join(name);
            text.inspect(|text| fs::write(&path, text).unwrap());
            path
        };
        Node::read(configured, &path("machine-id", machine_id), &path("hostname", hostname))
    }

    /// What `systemd-id128 machine-id --app-specific` said of such a machine.
    #[test]
    fn the_uuid_is_what_systemd_derives() {
        let node = node(Some("3d1219c7c4c5404aaa1f6d2a48adfda4\n"), Some("alpha\n"), None).unwrap();
        assert_eq!(node.uuid().to_string(), "82dff0d2-38ce-47c6-a6c6-0eee761d34e9");
        assert_eq!(node.uuid().get_version_num(), 4);
        assert_eq!(node.name(), "alpha");
    }

    #[test]
    fn a_configured_uuid_comes_first() {
        let uuid = Uuid::from_u128(7);
        assert_eq!(node(None, None, Some(uuid)).unwrap().uuid(), uuid);
        assert_eq!(node(None, None, Some(uuid)).unwrap().name(), uuid.to_string(), "a host without a name");
        assert_eq!(node(None, Some("(none)\n"), Some(uuid)).unwrap().name(), uuid.to_string());
        assert!(matches!(node(None, None, Some(Uuid::nil())), Err(NodeError::Nil)));
    }

    #[test]
    fn without_a_machine_id_the_error_says_what_to_do() {
        let message = |text| node(text, None, None).unwrap_err().to_string();
        for (text, says) in [
            (None, "cannot be read (No such file"),
            (Some(""), "is empty: configure"),
            (Some("uninitialized\n"), "is 'uninitialized'"),
            (Some("00000000000000000000000000000000\n"), "is '0000"),
            (Some("3d1219c7c4c5404aaa1f6d2a48adfda\n"), "is '3d12"),
            (Some("3d1219c7-c4c5-404a-aa1f-6d2a48adfda4\n"), "is '3d12"),
        ] {
            let message = message(text);
            assert!(message.contains(says) && message.contains("configure the node's UUID"), "{message}");
        }
        let message = message(Some("\u{1b}[31m"));
        assert!(!message.contains(char::is_control), "{message}");
    }

    #[test]
    fn two_machines_are_two_nodes() {
        let one = node(Some("00000000000000000000000000000001"), None, None).unwrap();
        let other = node(Some("00000000000000000000000000000002"), None, None).unwrap();
        assert_ne!(one.uuid(), other.uuid());
        assert_ne!(one.uuid(), Uuid::from_u128(1), "the machine-id is not given away");
    }
}
