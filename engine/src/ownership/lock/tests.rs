use std::os::unix::fs::{PermissionsExt, symlink};
use std::{fs, process};

use tempfile::TempDir;
use tentpeg_driver::controller::NamespaceIdentity;

use super::*;
use crate::{Engine, EngineConfig, OpenError};

struct Place {
    folder: TempDir,
    locks: LockFolder,
    name: LockName,
}

fn place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let locks = LockFolder::at(folder.path().join("locks"));
    let identity = NamespaceIdentity { nguid: Some([0xA5; 16]), ..NamespaceIdentity::default() };
    Place { folder, locks, name: LockName::of_namespace(&identity, "", 1, "") }
}

impl Place {
    fn lock(&self, mode: LockMode) -> Result<Lock, LockError> {
        Lock::of_namespace(&self.locks, &self.name, mode)
    }

    fn file(&self) -> PathBuf {
        self.locks.path().join(self.name.as_str())
    }

    fn store(&self) -> PathBuf {
        let path = self.folder.path().join("store");
        if !path.exists() {
            fs::write(&path, [7; 4096]).unwrap();
        }
        path
    }
}

#[track_caller]
fn held(outcome: Result<Lock, LockError>) -> String {
    match outcome {
        Err(error @ LockError::Held { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn names_this_process(message: &str) {
    let named = format!("in use by this process itself, process {} (", process::id());
    assert!(message.contains(&named), "{message}");
}

#[test]
fn of_two_engines_in_a_process_one_wins() {
    let place = place();
    let winner = place.lock(LockMode::Exclusive).unwrap();
    for mode in [LockMode::Exclusive, LockMode::Shared] {
        let message = held(place.lock(mode));
        names_this_process(&message);
        assert!(message.starts_with("namespace nguid-a5a5a5a5") && message.contains(" since 20"), "{message}");
    }
    drop(winner);
    assert_eq!(fs::read(place.file()).unwrap(), b"", "who is gone is not named");
    assert_eq!(place.lock(LockMode::Exclusive).unwrap().mode(), LockMode::Exclusive);
}

#[test]
fn readers_share_and_exclude_a_writer() {
    let place = place();
    let readers = [place.lock(LockMode::Shared).unwrap(), place.lock(LockMode::Shared).unwrap()];
    names_this_process(&held(place.lock(LockMode::Exclusive)));
    drop(readers);
    place.lock(LockMode::Exclusive).unwrap();
}

/// Two engines in a process, by whatever names they call the file.
#[test]
fn a_store_that_is_in_use_is_told_with_who_has_it() {
    let place = place();
    let (store, link) = (place.store(), place.folder.path().join("link"));
    symlink(&store, &link).unwrap();
    let open = |path: &Path| {
        let uri = format!("model:path={},overwrite", path.display());
        Engine::open(&uri, EngineConfig::default())
    };
    let winner = open(&store).unwrap();
    for path in [&store, &link] {
        let Err(OpenError::Lock(error)) = open(path) else { panic!("two have won") };
        let message = error.to_string();
        names_this_process(&message);
        assert!(message.starts_with(&format!("the store {}", path.display())), "{message}");
    }
    winner.close().unwrap();
    open(&link).unwrap().close().unwrap();
    let LockError::Held { holders, .. } = store_in_use(&store) else { panic!() };
    assert_eq!(holders, [], "nobody has it any more");
    assert!(store_in_use(&place.folder.path().join("none")).to_string().contains("a process that cannot be seen"));
}

#[test]
fn what_an_old_holder_left_is_harmless() {
    let place = place();
    fs::create_dir(place.locks.path()).unwrap();
    for left in ["", "{\"pid\":1,\"command\":\"init\",\"since\":0}", "{\"pid\":-1", "\0\0\0"] {
        fs::write(place.file(), left).unwrap();
        let winner = place.lock(LockMode::Shared).unwrap();
        // A record that is not the holder's is not shown.
        names_this_process(&held(place.lock(LockMode::Exclusive)));
        drop(winner);
        place.lock(LockMode::Exclusive).unwrap();
    }
}

#[test]
fn a_folder_that_others_could_change_is_refused() {
    let not_trusted = |place: &Place, says: &str| match place.lock(LockMode::Exclusive) {
        Err(error @ LockError::NotTrusted { .. }) => assert!(error.to_string().contains(says), "{error}"),
        other => panic!("{other:?}"),
    };
    let place = place();
    fs::create_dir(place.locks.path()).unwrap();
    fs::set_permissions(place.locks.path(), fs::Permissions::from_mode(0o777)).unwrap();
    not_trusted(&place, "writable for everybody");
    fs::set_permissions(place.locks.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    not_trusted(&place, "writable for everybody");
    fs::set_permissions(place.locks.path(), fs::Permissions::from_mode(0o770)).unwrap();
    drop(place.lock(LockMode::Exclusive).unwrap());
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(place.locks.path(), Some(65534), None).unwrap();
        not_trusted(&place, "belong to you");
    }

    let other = tempfile::tempdir().unwrap();
    fs::remove_file(place.file()).unwrap();
    fs::remove_dir(place.locks.path()).unwrap();
    symlink(other.path(), place.locks.path()).unwrap();
    not_trusted(&place, "no link");
    fs::remove_file(place.locks.path()).unwrap();
    fs::write(place.locks.path(), "").unwrap();
    not_trusted(&place, "must be a folder");
}

#[test]
fn a_file_that_leads_elsewhere_is_refused_and_not_touched() {
    let place = place();
    fs::create_dir(place.locks.path()).unwrap();
    let precious = place.store();
    for make in [|from: &Path, to: &Path| symlink(from, to), |from: &Path, to: &Path| fs::hard_link(from, to)] {
        make(&precious, &place.file()).unwrap();
        let outcome = place.lock(LockMode::Exclusive);
        assert!(matches!(outcome, Err(LockError::NotTrusted { .. })), "{outcome:?}");
        assert_eq!(fs::read(&precious).unwrap(), [7; 4096]);
        fs::remove_file(place.file()).unwrap();
    }
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place.file(),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    assert!(matches!(place.lock(LockMode::Exclusive), Err(LockError::NotTrusted { .. })), "a pipe");
}

#[test]
fn a_file_that_was_removed_holds_nobody_apart_and_is_noticed() {
    let place = place();
    let first = place.lock(LockMode::Exclusive).unwrap();
    let folder = place.locks.open().unwrap();
    assert!(folder.holds(&place.name, &first.file).unwrap());
    fs::remove_file(place.file()).unwrap();
    assert!(!folder.holds(&place.name, &first.file).unwrap());
    fs::write(place.file(), "").unwrap();
    assert!(!folder.holds(&place.name, &first.file).unwrap(), "another file of the same name");
}

#[test]
fn a_missing_folder_above_is_an_error_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let locks = LockFolder::at(folder.path().join("none/locks"));
    let message = Lock::of_namespace(&locks, &place().name, LockMode::Shared).unwrap_err().to_string();
    assert!(message.starts_with("cannot create ") && message.contains("none/locks: No such file"), "{message}");
}

#[test]
fn a_namespace_has_one_name() {
    let name = |nguid, eui64, uuid, serial: &str| {
        let identity = NamespaceIdentity { nguid, eui64, uuid, csi: None };
        LockName::of_namespace(&identity, serial, 3, "0000:01:00.0").to_string()
    };
    let (nguid, eui64, uuid) = (Some([1; 16]), Some([2; 8]), Some([3; 16]));
    assert_eq!(name(nguid, eui64, uuid, "S"), "nguid-01010101010101010101010101010101");
    assert_eq!(name(Some([0; 16]), eui64, uuid, "S"), "eui64-0202020202020202");
    assert_eq!(name(None, Some([0; 8]), uuid, "S"), "uuid-03030303030303030303030303030303");
    assert_eq!(name(None, None, None, " SN 1/../_\u{1b} "), "serial-SN_201_2f.._2f_5f_1b-nsid-3");
    assert_eq!(name(None, None, Some([0; 16]), "  "), "function-0000_3a01_3a00.0-nsid-3");
    let long = name(None, None, None, &"\u{e9}".repeat(1000));
    assert!(long.len() < 255, "a file's name: {}", long.len());
}
