use proptest::prelude::*;

use super::*;

fn list(text: &str) -> CpuList {
    text.parse().unwrap()
}

#[test]
fn lists_are_read_as_linux_writes_them_and_in_their_order() {
    assert_eq!(list("0-2,8"), CpuList(vec![0, 1, 2, 8]));
    assert_eq!(list("3,1"), CpuList(vec![3, 1]), "lane 0 has processor 3");
    assert_eq!((list("3,1").to_string(), list("0,1,2,8").to_string()), ("3,1".to_owned(), "0-2,8".to_owned()));
    assert_eq!(CpuList::default().to_string(), "none");
    for text in ["", ",", "1,", "-1", "1-", "2-1", "a", "1 ", "+1", "1024", "0-99999999999999999999"] {
        assert_eq!(text.parse::<CpuList>(), Err(CpuListError(text.to_owned())), "{text}");
    }
}

#[test]
fn what_is_not_there_and_what_is_not_allowed_are_two_things() {
    let (online, allowed) = (list("0-3"), list("0,2"));
    require_of(&[0, 2, 0], &online, &allowed).unwrap();
    let message = |cpus: &[usize]| require_of(cpus, &online, &allowed).unwrap_err().to_string();
    assert_eq!(message(&[0, 7]), "there is no processor 7: the machine has 0-3 online");
    assert!(message(&[3]).starts_with("this process may not run on processor 3, but on 0,2: see taskset"));
}

#[test]
fn this_machine_has_no_such_processor_and_no_device_without_a_node_is_near_any() {
    assert!(matches!(require(&[MAX + 7]), Err(LaneError::NoCpu { cpu, .. }) if cpu == MAX + 7));
    assert_eq!(near(&[("model".to_owned(), None)]).unwrap(), None);
    let nowhere = near(&[("model".to_owned(), Some(u32::MAX))]);
    assert!(matches!(nowhere, Err(LaneError::Kernel(_))), "the machine has no such node");
}

#[test]
fn what_the_call_cannot_name_is_left_out() {
    let set = CpuList(vec![0, MAX - 1, MAX, usize::MAX]).set();
    assert_eq!(CpuList::of(&set), CpuList(vec![0, MAX - 1]));
}

#[test]
fn near_is_the_node_of_the_device_as_far_as_it_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    for (node, cpus) in [(0, "0-3\n"), (1, "4-7\n"), (2, "\n")] {
        let node = folder.path().join(format!("node/node{node}"));
        fs::create_dir_all(&node).unwrap();
        fs::write(node.join("cpulist"), cpus).unwrap();
    }
    let devices = |nodes: &[Option<u32>]| -> Vec<_> {
        nodes.iter().zip(["a", "b"]).map(|(node, name)| (name.to_owned(), *node)).collect()
    };
    let near = |nodes: &[Option<u32>], allowed: &str| near_of(&devices(nodes), folder.path(), &list(allowed));
    assert_eq!(near(&[Some(1)], "0-7").unwrap(), Some(list("4-7")));
    assert_eq!(near(&[Some(1), Some(0)], "2-5").unwrap(), Some(list("2-5")), "a lane of two devices is near both");
    assert_eq!(near(&[None, Some(0)], "0-7").unwrap(), Some(list("0-3")));
    assert_eq!(near(&[None], "0-7").unwrap(), None);
    let message = near(&[Some(0), Some(1)], "0-3").unwrap_err().to_string();
    assert!(message.starts_with("this process may run on processors 0-3, and near b are 4-7: "), "{message}");
    assert!(matches!(near(&[Some(2)], "0-3"), Err(LaneError::NotNear { .. })), "a node of memory alone");
    assert!(matches!(near(&[Some(9)], "0-3"), Err(LaneError::Kernel(_))), "no such node");
}

#[test]
fn a_thread_runs_where_it_is_pinned() {
    let CpuList(cpus) = allowed().unwrap();
    let last = CpuList(vec![*cpus.last().unwrap()]);
    require(&last.0).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(&last).unwrap();
            assert_eq!(allowed().unwrap(), last);
        });
    });
    assert_eq!(allowed().unwrap(), CpuList(cpus), "and nobody else is");
}

#[test]
fn a_visit_ends_at_home() {
    let home = allowed().unwrap();
    let last = CpuList(vec![*home.0.last().unwrap()]);
    assert_eq!(visit(Some(&last), || allowed().unwrap()).unwrap(), last);
    assert_eq!(allowed().unwrap(), home);
    assert_eq!(visit(None, || allowed().unwrap()).unwrap(), home);
    let outcome = std::panic::catch_unwind(|| visit(Some(&last), || panic!("what is done there fails")));
    assert!(outcome.is_err());
    assert_eq!(allowed().unwrap(), home);
    assert!(visit(Some(&CpuList::default()), || ()).is_err(), "nowhere");
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(cpus in prop::collection::vec(0usize..MAX, 1..20)) {
        let list = CpuList(cpus);
        prop_assert_eq!(list.to_string().parse(), Ok(list));
    }

    #[test]
    fn no_text_panics(text in "[0-9,-]{0,12}") {
        let _ = text.parse::<CpuList>();
    }
}
