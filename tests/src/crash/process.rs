//! A child as its parent has it: what it says, and its end.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::child::Order;
use super::image::text;
use super::record::Record;

/// A child that says nothing for so long hangs.
const SILENCE: Duration = Duration::from_secs(120);

/// A child. It is killed and reaped whatever becomes of its parent's interest.
pub(super) struct Process {
    child: Child,
    records: Receiver<Result<Record, String>>,
    reader: Option<JoinHandle<()>>,
}

impl Process {
    pub(super) fn start(program: &Path, order: &Order) -> Result<Self, String> {
        let order = serde_json::to_string(order).map_err(text)?;
        let mut command = Command::new(program);
        command.arg("--child").arg(order).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let out = child.stdout.take();
        let (sender, records) = mpsc::channel();
        let reader = thread::spawn(move || {
            let Some(out) = out else { return };
            let mut lines = BufReader::new(out);
            loop {
                let mut line = String::new();
                let record = match lines.read_line(&mut line) {
                    Ok(0) => return,
                    Ok(_) => serde_json::from_str(&line).map_err(|error| format!("{line:?} is no record: {error}")),
                    Err(error) => Err(error.to_string()),
                };
                if sender.send(record).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, records, reader: Some(reader) })
    }

    /// What it says next; nothing, when it has said all that it ever will.
    pub(super) fn next(&self) -> Result<Option<Record>, String> {
        match self.records.recv_timeout(SILENCE) {
            Ok(record) => record.map(Some),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err(format!("the child says nothing for {SILENCE:?}")),
        }
    }

    /// SIGKILL. What it has said before is still to be heard.
    pub(super) fn kill(&mut self) -> Result<(), String> {
        self.child.kill().map_err(text)
    }

    /// Waits for its end, by which all of its threads and descriptors are gone. An error, if it was not killed.
    pub(super) fn reap(mut self) -> Result<(), String> {
        let status = self.child.wait().map_err(text)?;
        match status.signal() {
            Some(libc::SIGKILL) => Ok(()),
            _ => Err(format!("the child ended by itself: {status}")),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both do nothing where it has been reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}
