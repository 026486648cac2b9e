//! The tier of a controller in another process, reached over a vfio-user socket.
//!
//! Each test gets a server process of its own (`vfio_user_server`), with a model made to order. A watchdog kills the
//! process when its time is over: then the controller is gone, and the test fails.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tentpeg_driver::controller::{Controller, ControllerConfig};
use tentpeg_driver::vfio_user::{ClientConfig, SilentServer, VfioUserFunction};
use tentpeg_engine::EngineConfig;

use super::{Bench, Ending, EngineBench, Seen, Tier, Wanted, Witness};

/// How long a server may live: far longer than any test, on any machine.
const LIFE: Duration = Duration::from_secs(300);
/// How long a server may take to answer. A machine under load is no reason to fail.
const ANSWER: Duration = Duration::from_secs(60);

/// What a server process says when it is ready for a client.
pub const READY: &str = "ready";
/// How it begins to say why a model cannot be made to this order.
pub const REFUSED: &str = "refused: ";
/// What it is asked, and the beginning of its answer: commands, bytes and violations that its model has seen.
pub const SEEN: &str = "seen";

/// Controllers behind a socket.
pub struct VfioUserTier {
    program: PathBuf,
    name: &'static str,
    store: &'static str,
}

impl VfioUserTier {
    /// Served by `program`.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), name: "vfio-user", store: "memory" }
    }

    /// As [`new`](Self::new), by a device that says it has moved data and has not: for showing that tests can fail.
    pub fn forgetful(program: impl Into<PathBuf>) -> Self {
        Self { name: "vfio-user, forgetful", store: "null", ..Self::new(program) }
    }

    /// A process with a model that is as wanted, and the way to it.
    fn serve(&self, wanted: Wanted) -> Result<(ServerProcess, Arc<VfioUserFunction>), Ending> {
        let Wanted { lba_size, mdts, mqes, mpsmin, dstrd } = wanted;
        let mut arguments = vec!["--store".to_owned(), self.store.to_owned()];
        let wishes = [
            ("--lba-size", lba_size.map(u64::from)),
            ("--mdts", mdts.map(u64::from)),
            ("--mqes", mqes.map(u64::from)),
            ("--mpsmin", mpsmin.map(u64::from)),
            ("--dstrd", dstrd.map(u64::from)),
        ];
        for (option, value) in wishes {
            arguments.extend(value.map(|value| format!("{option}={value}")));
        }
        let process = ServerProcess::start(&self.program, &arguments)?;
        let function = process.connect(&patient_client())?;
        Ok((process, function))
    }
}

impl Tier for VfioUserTier {
    fn name(&self) -> &str {
        self.name
    }

    fn controller(&self, wanted: Wanted) -> Result<Bench, Ending> {
        let (process, function) = self.serve(wanted)?;
        let controller = Controller::enable(function, ControllerConfig::default())?;
        Bench::new(controller, Some(Box::new(process)))
    }

    fn engine(&self, wanted: Wanted, config: EngineConfig) -> Result<EngineBench, Ending> {
        let (process, function) = self.serve(wanted)?;
        EngineBench::on_function(function, config, Some(process))
    }
}

/// A client that a machine under load does not make give up. It kills a server that neither answers nor goes away: the
/// server is the test's own.
pub fn patient_client() -> ClientConfig {
    ClientConfig {
        answer_timeout: ANSWER,
        close_timeout: ANSWER,
        silent_server: SilentServer::Kill,
        ..ClientConfig::default()
    }
}

/// A server in a process of its own, with its socket in a folder of its own. It is killed when dropped, and when its time
/// is over.
pub struct ServerProcess {
    folder: TempDir,
    child: Arc<Mutex<Child>>,
    stdin: Mutex<ChildStdin>,
    lines: Mutex<Receiver<String>>,
    /// Its end is that of the watchdog.
    _watchdog: Sender<()>,
}

impl ServerProcess {
    /// Starts `program`, and waits until it can be connected to.
    ///
    /// # Errors
    /// [`Ending::Skipped`] when it has no such device, [`Ending::Failed`] when it does not come up.
    pub fn start(program: &Path, arguments: &[String]) -> Result<Self, Ending> {
        let folder = tempfile::tempdir()?;
        let mut child = Command::new(program)
            .arg("--socket")
            .arg(folder.path().join("socket"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let child = Arc::new(Mutex::new(child));
        let (Some(stdin), Some(stdout)) = (stdin, stdout) else {
            return Err(Ending::Failed("a process without pipes".to_owned()));
        };
        let (watchdog, ended) = mpsc::channel();
        let watched = Arc::clone(&child);
        thread::spawn(move || {
            if ended.recv_timeout(LIFE) == Err(RecvTimeoutError::Timeout) {
                eprintln!("the vfio-user server is killed: it has lived for {} s", LIFE.as_secs());
                // It may have ended by itself at this moment.
                let _ = lock(&watched).kill();
            }
        });
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(stdout).lines();
            lines.map_while(Result::ok).all(|line| sender.send(line).is_ok());
        });
        let process = Self { folder, child, stdin: Mutex::new(stdin), lines: Mutex::new(lines), _watchdog: watchdog };
        let line = process.line()?;
        match line.strip_prefix(REFUSED) {
            Some(reason) => Err(Ending::Skipped(reason.to_owned())),
            None if line == READY => Ok(process),
            None => Err(Ending::Failed(format!("the server says {line:?}; {READY:?} would be right"))),
        }
    }

    /// A client of it.
    ///
    /// # Errors
    /// [`Ending::Failed`] when it does not come about.
    pub fn connect(&self, config: &ClientConfig) -> Result<Arc<VfioUserFunction>, Ending> {
        Ok(VfioUserFunction::connect(&self.socket(), config)?)
    }

    /// Where its socket is.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// Its process identifier.
    pub fn id(&self) -> u32 {
        lock(&self.child).id()
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When it is no more.
    pub fn signal(&self, signal: Signal) -> Result<(), Ending> {
        Ok(kill_process(Pid::from_child(&lock(&self.child)), signal)?)
    }

    /// Waits until it has ended, and says whether a signal has ended it.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn wait(&self) -> Result<Option<i32>, Ending> {
        Ok(std::os::unix::process::ExitStatusExt::signal(&lock(&self.child).wait()?))
    }

    /// The next line that it prints.
    fn line(&self) -> Result<String, Ending> {
        let lines = lock(&self.lines);
        lines.recv_timeout(ANSWER).map_err(|_| Ending::Failed("the server process says nothing".to_owned()))
    }

    fn ask(&self) -> Result<Seen, Ending> {
        writeln!(lock(&self.stdin), "{SEEN}")?;
        let line = self.line()?;
        let numbers: Vec<u64> = line.split(' ').skip(1).filter_map(|number| number.parse().ok()).collect();
        match (line.starts_with(SEEN), numbers.as_slice()) {
            (true, &[commands, bytes, violations]) => Ok(Seen { commands, bytes, violations: violations as usize }),
            _ => Err(Ending::Failed(format!("the server says {line:?} to {SEEN:?}"))),
        }
    }
}

impl Witness for ServerProcess {
    /// One that cannot tell has seen what nobody can have asked for.
    fn seen(&self) -> Seen {
        self.ask().unwrap_or(Seen { commands: u64::MAX, bytes: u64::MAX, violations: usize::MAX })
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let mut child = lock(&self.child);
        // It may have ended already; then there is nothing to kill, and it is reaped all the same.
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere leaves a pipe and a child what they are.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
