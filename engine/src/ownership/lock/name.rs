//! What a lock is called: by what a namespace is known, whichever function or controller leads to it.

use std::fmt::{self, Write};

use tentpeg_driver::controller::NamespaceIdentity;

/// The name of a namespace's lock, which is that of its file too.
///
/// NGUID, else EUI64, else UUID. The first two are in Identify Namespace, which every opener has read, while the list with
/// the UUID came later (NVM Express 1.3) and some controllers must not be asked for it: in the other order two openers
/// could call one namespace by two names. Without any of them: the controller's serial number and the NSID; without a
/// serial number, the function's address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LockName(String);

impl LockName {
    /// Of the namespace `nsid`, behind a controller with `serial_number` at `function`, such as `0000:01:00.0`.
    pub fn of_namespace(identity: &NamespaceIdentity, serial_number: &str, nsid: u32, function: &str) -> Self {
        let set = |bytes: &[u8]| bytes.iter().any(|byte| *byte != 0);
        let mut name = String::new();
        if let Some(nguid) = identity.nguid.filter(|nguid| set(nguid)) {
            push(&mut name, "nguid-", &nguid);
        } else if let Some(eui64) = identity.eui64.filter(|eui64| set(eui64)) {
            push(&mut name, "eui64-", &eui64);
        } else if let Some(uuid) = identity.uuid.filter(|uuid| set(uuid)) {
            push(&mut name, "uuid-", &uuid);
        } else {
            let serial_number = serial_number.trim();
            let (kind, text) =
                if serial_number.is_empty() { ("function", function) } else { ("serial", serial_number) };
            name = format!("{kind}-{}-nsid-{nsid}", plain(text));
        }
        Self(name)
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn push(name: &mut String, kind: &str, bytes: &[u8]) {
    name.push_str(kind);
    for byte in bytes {
        let _ = write!(name, "{byte:02x}");
    }
}

/// Letters, digits, dots and hyphens; each other byte as `_` and two digits, so that no two texts become one. A device
/// says what it likes; 64 bytes of it are far more than a serial number has.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for byte in text.bytes().take(64) {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-') {
            plain.push(byte.into());
        } else {
            let _ = write!(plain, "_{byte:02x}");
        }
    }
    plain
}
