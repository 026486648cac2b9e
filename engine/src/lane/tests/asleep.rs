//! A lane that falls asleep, step by step: its device's interrupt is the test's.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};

use tentpeg_driver::bus::Interrupt;
use tentpeg_driver::model::faults::{Action, CommandQueue, Rule, When};

use super::*;
use crate::lane::bell::Alarm;
use crate::lane::sleep::{Sleeps, Woken};

const BLOCK: u64 = 4096;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    Arm,
    Disarm,
}

/// Readable when the test sounds it.
struct Told {
    sounds: Arc<Alarm>,
    calls: Arc<Mutex<Vec<Call>>>,
    fails: bool,
}

impl AsFd for Told {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sounds.as_fd()
    }
}

impl Interrupt for Told {
    fn arm(&mut self) -> io::Result<()> {
        self.calls.lock().unwrap().push(Call::Arm);
        if self.fails { Err(io::ErrorKind::Unsupported.into()) } else { Ok(()) }
    }

    fn disarm(&mut self) {
        self.calls.lock().unwrap().push(Call::Disarm);
    }
}

/// A lane whose device ends no command, and what it is woken by.
struct Sleeper {
    bench: Bench,
    alarm: Arc<Alarm>,
    interrupt: Arc<Alarm>,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl Sleeper {
    fn new() -> Self {
        let bench = Bench::open("model:size=1MiB", 16, 16 * BLOCK as usize);
        let never = Action::Delay { turns: u32::MAX };
        let rule = Rule { queue: CommandQueue::Io, opcode: None, when: When::Next(u64::MAX), action: never };
        bench.engine.faults().unwrap().add(rule);
        Self { bench, alarm: Alarm::new().unwrap(), interrupt: Alarm::new().unwrap(), calls: Arc::default() }
    }

    fn has_interrupt(&mut self, fails: bool) {
        let (sounds, calls) = (Arc::clone(&self.interrupt), Arc::clone(&self.calls));
        self.bench.lane.ports[0].interrupt = Some(Box::new(Told { sounds, calls, fails }));
    }

    fn issue(&mut self) {
        self.bench.submit(&[self.bench.read(0, 0, BLOCK)]);
        assert!(self.bench.lane.turn());
    }

    fn sleep(&mut self) -> Woken {
        self.bench.lane.sleep(&self.alarm, &Sleeps::default(), || false)
    }

    fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }
}

#[test]
fn a_lane_that_is_stopped_or_has_something_to_do_does_not_sleep() {
    let mut sleeper = Sleeper::new();
    sleeper.has_interrupt(false);
    let Sleeper { bench, alarm, .. } = &mut sleeper;
    assert_eq!(bench.lane.sleep(alarm, &Sleeps::default(), || true), Woken::Never);
    bench.submit(&[bench.read(0, 0, BLOCK)]);
    assert_eq!(sleeper.sleep(), Woken::Never, "a request that came before it had said that it sleeps");
    assert_eq!(sleeper.sleep(), Woken::Time, "the request is the device's");
}

#[test]
fn whoever_called_is_answered_once() {
    let mut sleeper = Sleeper::new();
    sleeper.alarm.sound();
    assert_eq!(sleeper.sleep(), Woken::Called);
    assert_eq!(sleeper.sleep(), Woken::Time);
}

/// Nothing would tell it of a completion.
#[test]
fn without_an_interrupt_a_lane_sleeps_only_while_nothing_is_in_flight() {
    for fails in [None, Some(true)] {
        let mut sleeper = Sleeper::new();
        fails.into_iter().for_each(|fails| sleeper.has_interrupt(fails));
        assert_eq!(sleeper.sleep(), Woken::Time);
        sleeper.issue();
        assert_eq!(sleeper.sleep(), Woken::Never);
        assert!(sleeper.bench.lane.ports[0].armed_interrupt().is_none());
        sleeper.bench.lane.disarm();
        assert_eq!(sleeper.calls(), vec![Call::Arm; fails.into_iter().count()], "there is nothing to disarm");
    }
}

#[test]
fn an_interrupt_is_armed_while_it_may_tell_of_something_until_the_lane_is_busy() {
    let mut sleeper = Sleeper::new();
    sleeper.has_interrupt(false);
    assert_eq!(sleeper.sleep(), Woken::Time);
    assert_eq!(sleeper.calls(), [], "no command is in flight");
    sleeper.issue();
    assert_eq!(sleeper.sleep(), Woken::Time);
    sleeper.interrupt.sound();
    assert_eq!(sleeper.sleep(), Woken::Interrupted);
    assert_eq!(sleeper.calls(), [Call::Arm; 2], "each time anew, so that it forgets what it has told");
    assert!(sleeper.bench.lane.ports[0].armed_interrupt().is_some());
    sleeper.bench.lane.disarm();
    sleeper.bench.lane.disarm();
    assert_eq!(sleeper.calls(), [Call::Disarm]);
    assert!(sleeper.bench.lane.ports[0].armed_interrupt().is_none());
}

/// One that is left armed has told of what has ended since: it is armed anew though nothing is in flight any more.
#[test]
fn an_interrupt_that_is_armed_is_armed_anew_when_all_has_ended() {
    let mut sleeper = Sleeper::new();
    sleeper.has_interrupt(false);
    sleeper.bench.lane.ports[0].is_armed = true;
    assert_eq!(sleeper.sleep(), Woken::Time);
    assert_eq!(sleeper.calls(), [Call::Arm]);
}
