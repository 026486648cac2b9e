use proptest::prelude::*;

use super::*;

const TYPES: [ReservationType; 6] = [
    ReservationType::WRITE_EXCLUSIVE,
    ReservationType::EXCLUSIVE_ACCESS,
    ReservationType::WRITE_EXCLUSIVE_REGISTRANTS_ONLY,
    ReservationType::EXCLUSIVE_ACCESS_REGISTRANTS_ONLY,
    ReservationType::WRITE_EXCLUSIVE_ALL_REGISTRANTS,
    ReservationType::EXCLUSIVE_ACCESS_ALL_REGISTRANTS,
];

fn host(number: u8) -> HostKey {
    HostKey::new([number; 16], number.into())
}

/// Reservations with hosts 1 and up to `hosts`, whose keys are their numbers.
fn registered(hosts: u8) -> Reservations {
    let mut reservations = Reservations::default();
    for number in 1..=hosts {
        reservations.set_user(number.into(), host(number), Some(true));
        let none = ChangePersistence::NO_CHANGE;
        reservations.register(RegisterAction::REGISTER, (0, number.into()), false, none).unwrap();
    }
    reservations
}

fn held_by_first(hosts: u8, rtype: ReservationType) -> Reservations {
    let mut reservations = registered(hosts);
    reservations.user = host(1);
    reservations.acquire(AcquireAction::ACQUIRE, rtype, (1, 0)).unwrap();
    reservations
}

#[test]
fn each_type_excludes_whom_the_table_says() {
    // Of each type: whether a registrant may read and write, whether anybody else may.
    let table = [
        (true, false, true, false),
        (false, false, false, false),
        (true, true, true, false),
        (true, true, false, false),
    ];
    for (rtype, (reads, writes, others_read, others_write)) in
        TYPES.into_iter().zip(table.into_iter().chain(table[2..].iter().copied()))
    {
        let mut reservations = held_by_first(2, rtype);
        let mut may = |number| {
            reservations.user = host(number);
            (!reservations.forbids(Wish::Read), !reservations.forbids(Wish::Write))
        };
        assert_eq!(may(1), (true, true), "{rtype}: the holder");
        assert_eq!(may(2), (reads, writes), "{rtype}: a registrant");
        assert_eq!(may(3), (others_read, others_write), "{rtype}: somebody else");
    }
}

#[test]
fn a_reservation_of_all_lasts_as_long_as_one_is_registered() {
    for rtype in TYPES {
        let mut reservations = held_by_first(3, rtype);
        let unregister = |reservations: &mut Reservations, number: u8| {
            reservations.user = host(number);
            let none = ChangePersistence::NO_CHANGE;
            reservations.register(RegisterAction::UNREGISTER, (number.into(), 0), false, none).unwrap()
        };
        let notices = unregister(&mut reservations, 1);
        assert_eq!(reservations.is_held(), rtype.is_held_by_all(), "{rtype}");
        let released = matches!(rtype.raw(), 3 | 4);
        let expected = (ReservationNotificationType::RESERVATION_RELEASED, vec![host(2), host(3)]);
        assert_eq!(notices.0, if released { vec![expected] } else { vec![] }, "{rtype}");
        unregister(&mut reservations, 3);
        assert_eq!(reservations.holds(host(2)), rtype.is_held_by_all());
        unregister(&mut reservations, 2);
        assert!(!reservations.is_held());
    }
}

#[test]
fn preempting_takes_what_the_key_names() {
    let preempt = |reservations: &mut Reservations, number: u8, rtype, prkey| {
        reservations.user = host(number);
        reservations.acquire(AcquireAction::PREEMPT, rtype, (number.into(), prkey))
    };
    for rtype in TYPES {
        let mut reservations = held_by_first(3, rtype);
        assert_eq!(preempt(&mut reservations, 2, TYPES[1], 99), Err(CONFLICT), "nobody has that key");
        // The key of the holder: its registration goes and, but for a reservation of all, its reservation comes.
        let notices = preempt(&mut reservations, 2, TYPES[1], 1).unwrap();
        assert!(reservations.registrant(host(1)).is_none());
        let held = reservations.held.unwrap();
        let takes = !rtype.is_held_by_all();
        assert_eq!((held.rtype, held.holder == host(2)), (if takes { TYPES[1] } else { rtype }, true));
        let gone = (ReservationNotificationType::REGISTRATION_PREEMPTED, vec![host(1)]);
        assert_eq!(notices.0.last(), Some(&gone));
        assert_eq!(notices.0.len(), if matches!(rtype.raw(), 3 | 4) { 2 } else { 1 }, "{rtype}");
    }
    // Key 0 names everybody, where all hold the reservation, and nobody elsewhere.
    let mut reservations = held_by_first(3, TYPES[5]);
    preempt(&mut reservations, 3, TYPES[0], 0).unwrap();
    assert_eq!((reservations.registrants.len(), reservations.held.unwrap().holder), (1, host(3)));
    assert_eq!(preempt(&mut reservations, 3, TYPES[0], 0), Err(INVALID));
    // A holder that preempts itself changes the type and stays registered.
    preempt(&mut reservations, 3, TYPES[3], 3).unwrap();
    assert_eq!((reservations.registrants.len(), reservations.held.unwrap().rtype), (1, TYPES[3]));
}

proptest! {
    /// Whatever hosts do: a reservation is a registrant's, and a host that is not registered gets nothing.
    #[test]
    fn what_holds_always(steps in prop::collection::vec((1u8..5, 0u8..8, 0u64..5, 0u64..5, 0u8..8), 0..60)) {
        let mut reservations = Reservations::default();
        for (number, step, first, second, rtype) in steps {
            reservations.set_user(number.into(), host(number), Some(true));
            let (generation, was) = (reservations.generation, reservations.registrant(host(number)).copied());
            let rtype = ReservationType::from_raw(rtype);
            let none = ChangePersistence::NO_CHANGE;
            let keys = (first, second);
            let outcome = match step {
                0..=2 => reservations.register(RegisterAction::from_raw(step), keys, false, none),
                3..=5 => reservations.acquire(AcquireAction::from_raw(step - 3), rtype, keys),
                _ => reservations.release(ReleaseAction::from_raw(step - 6), rtype, first),
            };
            if let Some(held) = reservations.held {
                prop_assert!(held.rtype.is_reservation());
                prop_assert!(reservations.registrant(held.holder).is_some());
                reservations.user = held.holder;
                prop_assert!(!reservations.forbids(Wish::Write));
            }
            let hosts: Vec<_> = reservations.registrants.iter().map(|registrant| registrant.host).collect();
            prop_assert!((1..hosts.len()).all(|at| !hosts[at..].contains(&hosts[at - 1])), "each host once");
            if step != 0 && was.is_none_or(|was| was.key != first) {
                prop_assert!(outcome.is_err());
            }
            if outcome.is_err() {
                prop_assert_eq!(reservations.generation, generation);
            }
        }
    }
}
