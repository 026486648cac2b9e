//! QEMU's monitor: lines of JSON on a socket (QEMU Machine Protocol).

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

/// The longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection, which can give commands.
pub(super) struct Monitor {
    lines: BufReader<UnixStream>,
}

impl Monitor {
    /// # Errors
    /// There is nobody at `socket`, or not QEMU.
    pub(super) fn connect(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut monitor = Self { lines: BufReader::new(stream) };
        monitor.next("QMP")?;
        monitor.execute(json!({ "execute": "qmp_capabilities" }))?;
        Ok(monitor)
    }

    /// Asks for a device back, in the orderly way: the guest is told by its slot.
    ///
    /// # Errors
    /// QEMU's own, such as that there is no such device.
    pub(super) fn delete(&mut self, id: &str) -> io::Result<()> {
        self.execute(json!({ "execute": "device_del", "arguments": { "id": id } }))
    }

    fn execute(&mut self, command: Value) -> io::Result<()> {
        let stream = self.lines.get_mut();
        stream.write_all(format!("{command}\n").as_bytes())?;
        self.next("return").map(|_| ())
    }

    /// The next line that has this key. Events are passed over, an error is one.
    fn next(&mut self, key: &str) -> io::Result<Value> {
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let value: Value = serde_json::from_str(&line)?;
            if let Some(error) = value.get("error") {
                return Err(io::Error::other(format!("QEMU: {error}")));
            }
            if value.get(key).is_some() {
                return Ok(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// A monitor that says what a real one does, events in between.
    fn played(answer: &'static str) -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let socket = folder.path().join("monitor");
        let listener = UnixListener::bind(&socket)?;
        let player = thread::spawn(move || -> io::Result<Vec<String>> {
            let (mut stream, _) = listener.accept()?;
            stream.write_all(b"{\"QMP\": {\"version\": {}}}\n")?;
            let mut commands = Vec::new();
            let mut lines = BufReader::new(stream.try_clone()?);
            for answer in ["{\"return\": {}}", answer] {
                let mut line = String::new();
                lines.read_line(&mut line)?;
                commands.push(line.trim().to_owned());
                stream.write_all(format!("{{\"event\": \"RESUME\"}}\n{answer}\n").as_bytes())?;
            }
            Ok(commands)
        });
        let deleted = Monitor::connect(&socket)?.delete("nvme8");
        let commands = player.join().unwrap()?;
        assert_eq!(commands[0], r#"{"execute":"qmp_capabilities"}"#);
        assert_eq!(commands[1], r#"{"arguments":{"id":"nvme8"},"execute":"device_del"}"#);
        deleted
    }

    #[test]
    fn commands_are_answered_among_events() {
        played(r#"{"return": {}}"#).unwrap();
        let error = played(r#"{"error": {"class": "DeviceNotFound", "desc": "no such device"}}"#).unwrap_err();
        assert!(error.to_string().contains("no such device"), "{error}");
    }
}
