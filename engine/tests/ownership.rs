//! Processes that contend for one device. They are this test's own binary, started again to run [`contender`] alone.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use tentpeg_driver::controller::NamespaceIdentity;
use tentpeg_engine::administration::Administration;
use tentpeg_engine::label::{NewLabel, NewSegment};
use tentpeg_engine::ownership::lock::{Lock, LockError, LockFolder, LockMode, LockName};
use tentpeg_engine::{Engine, OpenError, OpenOptions};
use uuid::Uuid;

/// Tells a child what to lock: the folder of locks, or nothing; and the store.
const FOLDER: &str = "TENTPEG_TEST_LOCK_FOLDER";
const STORE: &str = "TENTPEG_TEST_STORE";

/// What a contender has, as long as it is held.
enum Won {
    Namespace { _lock: Lock },
    Store { _engine: Box<Engine> },
}

/// All of them are one node.
fn options() -> OpenOptions {
    OpenOptions { node: Some(Uuid::from_u128(7)), ..OpenOptions::default() }
}

/// A device with a label and a segment.
fn labelled(store: &Path) {
    let uri = format!("model:path={},size=8MiB", store.display());
    let mut device = Administration::open_with(uri, &options()).unwrap();
    device.create_label(&NewLabel::default()).unwrap();
    let (mut label, mut blocks) = device.change().unwrap();
    let new = NewSegment { name: "kv".into(), capacity: 1 << 20, ..NewSegment::default() };
    label.create_segment(&mut *blocks, &new).unwrap();
    drop(blocks);
    device.close().unwrap();
}

fn lock(folder: Option<&Path>, store: Option<&Path>) -> Result<Won, LockError> {
    match (folder, store) {
        (Some(folder), _) => {
            let identity = NamespaceIdentity { eui64: Some([0xE6; 8]), ..NamespaceIdentity::default() };
            let name = LockName::of_namespace(&identity, "", 1, "");
            let lock = Lock::of_namespace(&LockFolder::at(folder), &name, LockMode::Exclusive)?;
            Ok(Won::Namespace { _lock: lock })
        }
        (None, Some(store)) => {
            let uri = format!("model:path={},overwrite", store.display());
            match Engine::open_devices([uri], options()) {
                Ok((engine, _)) => Ok(Won::Store { _engine: Box::new(engine) }),
                Err(OpenError::Lock(error)) => Err(error),
                Err(error) => panic!("{error}"),
            }
        }
        (None, None) => unreachable!("a contender is told what to lock"),
    }
}

/// A child's part: tries the lock, says how it went, and holds it until its input ends. Without orders it does nothing.
#[test]
fn contender() {
    let (folder, store) = (std::env::var_os(FOLDER), std::env::var_os(STORE));
    if folder.is_none() && store.is_none() {
        return;
    }
    let outcome = lock(folder.as_ref().map(Path::new), store.as_ref().map(Path::new));
    match &outcome {
        Ok(_) => println!("outcome: won"),
        Err(error) => println!("outcome: {error}"),
    }
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

struct Contender {
    child: Child,
    outcome: String,
    /// Held open as long as it is to hold what it has won.
    _stdin: ChildStdin,
}

impl Contender {
    fn start(variable: &str, path: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "contender", "--nocapture", "--test-threads=1"])
            .env(variable, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self { _stdin: child.stdin.take().unwrap(), child, outcome: String::new() }
    }

    fn hear(&mut self) {
        let lines = BufReader::new(self.child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut outcomes = lines.filter_map(|line| line.split_once("outcome: ").map(|(_, outcome)| outcome.to_owned()));
        self.outcome = outcomes.next().expect("a contender ended without a word");
    }

    fn has_won(&self) -> bool {
        self.outcome == "won"
    }

    /// As by kill -9: nothing is cleared up.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn contend(variable: &'static str, path: &Path) {
    for _ in 0..5 {
        let mut contenders: Vec<Contender> = (0..4).map(|_| Contender::start(variable, path)).collect();
        contenders.iter_mut().for_each(Contender::hear);
        let (mut winners, losers): (Vec<_>, Vec<_>) = contenders.into_iter().partition(Contender::has_won);
        assert_eq!(winners.len(), 1);
        let winner = winners.remove(0);
        let named = format!("process {} ({}", winner.child.id(), std::env::current_exe().unwrap().display());
        for loser in &losers {
            assert!(loser.outcome.contains(&named), "{}: not {named}", loser.outcome);
        }
        // This process is one more.
        let (folder, store) = if variable == FOLDER { (Some(path), None) } else { (None, Some(path)) };
        let Err(error) = lock(folder, store) else { panic!("two have won") };
        assert!(matches!(&error, LockError::Held { holders, .. } if holders[0].pid == winner.child.id()), "{error}");
        winner.kill();
        drop(lock(folder, store).unwrap_or_else(|error| panic!("{error}")));
    }
}

/// One test, since a child that is being started holds what this process has locked until it is another program.
#[test]
fn of_four_processes_one_has_the_device_until_it_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    contend(FOLDER, &folder.path().join("locks"));
    let store = folder.path().join("store");
    labelled(&store);
    contend(STORE, &store);
    // Whoever was killed has left nothing that keeps the next one out, and the label is as it was.
    let uri = format!("model:path={}", store.display());
    let engine = Engine::open_devices([uri], options()).unwrap().0;
    assert_eq!(engine.segments()[0].layout.name, "kv");
}
