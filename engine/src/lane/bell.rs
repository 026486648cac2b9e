//! How whoever has given a port something to do has it seen to: the thread of a lane that sleeps is woken, and what is
//! given to a port that is no more is given up.
//!
//! A lane that is about to sleep says so, looks at everything once more, and sleeps then; one that goes says so, and gives
//! up what it finds then. Whoever gives it something does that first and then looks what the lane has said. Each side has a
//! full barrier between the two, so that at least one of them sees what the other did: without it both may see what was
//! before, and nobody looks. `loom_tests` runs that. A device that posts an entry and looks whether its interrupt is
//! armed does the same (see [`Interrupt`](tentpeg_driver::bus::Interrupt)).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering, fence};
use std::sync::{Arc, Mutex};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};

/// The lane is turned, by its thread or by its caller.
const AWAKE: u8 = 0;
/// Its thread sleeps, or is about to.
const ASLEEP: u8 = 1;
/// Nobody turns it, and nobody ever will.
const GONE: u8 = 2;

/// The word in which a lane says how it is: the standard library's, or loom's.
trait Word {
    fn load(&self) -> u8;
    fn store(&self, value: u8);
    /// Keeps later loads behind earlier stores, of everybody who has one between his own.
    fn full_barrier(&self);
}

impl Word for AtomicU8 {
    #[inline]
    fn load(&self) -> u8 {
        // Acquire: what a port that is gone has counted, whoever gives up after it counts on from.
        AtomicU8::load(self, Ordering::Acquire)
    }

    fn store(&self, value: u8) {
        AtomicU8::store(self, value, Ordering::Release);
    }

    #[inline]
    fn full_barrier(&self) {
        fence(Ordering::SeqCst);
    }
}

/// How a lane is, as it says itself.
#[derive(Debug, Default)]
struct Attendance<W>(W);

impl<W: Word> Attendance<W> {
    /// By the lane, which looks at everything once more then.
    fn say(&self, state: u8) {
        self.0.store(state);
        self.0.full_barrier();
    }

    /// By whoever has given it something.
    #[inline]
    fn ask(&self) -> u8 {
        self.0.full_barrier();
        self.0.load()
    }
}

/// What wakes the thread of a lane.
#[derive(Debug)]
pub(crate) struct Alarm(OwnedFd);

impl Alarm {
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Wakes it, or keeps it from falling asleep.
    pub(crate) fn sound(&self) {
        // It is full after 2^64 of them, and readable then as well.
        let _ = write(&self.0, &1u64.to_ne_bytes());
    }

    /// Whether it has sounded, and forgets that it has.
    pub(super) fn take(&self) -> bool {
        read(&self.0, &mut [0; 8]).is_ok()
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// One port's bell: rung by whoever has given it something.
#[derive(Debug)]
pub(crate) struct Bell {
    attendance: Attendance<AtomicU8>,
    /// That of its lane's thread, where it has one.
    alarm: Option<Arc<Alarm>>,
    /// Held by whoever gives up what is given to a port that is no more.
    pub(super) giving_up: Mutex<()>,
}

impl Bell {
    pub(crate) fn new(alarm: Option<Arc<Alarm>>) -> Arc<Self> {
        Arc::new(Self { attendance: Attendance::default(), alarm, giving_up: Mutex::default() })
    }

    /// After something was given to the port. Whether somebody is there to see to it.
    #[inline]
    #[must_use]
    pub(crate) fn ring(&self) -> bool {
        match self.attendance.ask() {
            AWAKE => true,
            state => self.ring_out(state),
        }
    }

    #[cold]
    fn ring_out(&self, state: u8) -> bool {
        if let (ASLEEP, Some(alarm)) = (state, &self.alarm) {
            alarm.sound();
        }
        state != GONE
    }

    /// The lane is about to sleep.
    pub(super) fn lie_down(&self) {
        self.attendance.say(ASLEEP);
    }

    /// The lane is up again.
    pub(super) fn get_up(&self) {
        self.attendance.say(AWAKE);
    }

    /// The port goes.
    pub(super) fn leave(&self) {
        self.attendance.say(GONE);
    }
}

#[cfg(test)]
mod loom_tests;

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::thread;

    use super::*;

    #[test]
    fn an_alarm_is_heard_once() {
        let alarm = Alarm::new().unwrap();
        assert!(!alarm.take());
        alarm.sound();
        alarm.sound();
        assert!(alarm.take());
        assert!(!alarm.take());
    }

    #[test]
    fn only_a_lane_that_sleeps_is_woken_and_one_that_is_gone_sees_to_nothing() {
        let alarm = Alarm::new().unwrap();
        let bell = Bell::new(Some(Arc::clone(&alarm)));
        assert!(bell.ring() && !alarm.take());
        bell.lie_down();
        assert!(bell.ring() && alarm.take());
        bell.get_up();
        assert!(bell.ring() && !alarm.take());
        bell.leave();
        assert!(!bell.ring() && !alarm.take());
    }

    /// What loom runs, with the word that lanes have: a processor that lets loads pass stores shows it.
    #[test]
    fn a_lane_and_who_gives_it_something_do_not_miss_each_other() {
        const ROUNDS: u32 = 50_000;
        let rounds: Vec<_> =
            (0..ROUNDS).map(|_| (Attendance::<AtomicU8>::default(), AtomicU32::new(0), AtomicU32::new(0))).collect();
        // Both are in one round at a time.
        let meet = |met: &AtomicU32| {
            met.fetch_add(1, Ordering::AcqRel);
            while met.load(Ordering::Acquire) < 2 {
                std::hint::spin_loop();
            }
        };
        let (seen_by_lane, seen_by_giver) = thread::scope(|scope| {
            let lane = scope.spawn(|| {
                let seen = rounds.iter().map(|(attendance, given, met)| {
                    meet(met);
                    attendance.say(ASLEEP);
                    given.load(Ordering::Relaxed) != 0
                });
                seen.collect::<Vec<_>>()
            });
            let giver = rounds.iter().map(|(attendance, given, met)| {
                meet(met);
                given.store(1, Ordering::Relaxed);
                attendance.ask() == ASLEEP
            });
            let giver = giver.collect::<Vec<_>>();
            (lane.join().unwrap(), giver)
        });
        assert_eq!(seen_by_lane.iter().zip(&seen_by_giver).position(|seen| seen == (&false, &false)), None);
    }
}
