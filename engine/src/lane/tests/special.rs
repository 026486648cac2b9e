//! What is more than a transfer, where its device, or whoever admitted it, goes wrong.

use std::sync::Arc;
use std::time::Duration;

use tentpeg_driver::model::faults::{Action, At, CommandQueue, Life, Rule, When};
use tentpeg_driver::spec::status::StatusCode;

use super::*;
use crate::FailureReason;
use crate::lane::port::Port;
use crate::task::{Head, Transfer};
use TransferState::{Completed, Failed, Pending};

const BLOCK: u64 = 4096;
const STRIPE: SegmentId = SegmentId(1);
const OWN: SegmentId = SegmentId(2);

/// Two devices, two blocks a command: a stripe, block by block, and a segment of the first device alone.
fn open(queue_entries: u32) -> Bench {
    let mut config = EngineConfig { queue_entries, ..EngineConfig::default() };
    config.controller.recovery.health_interval = Duration::from_millis(1);
    let mut devices = Devices::new(LaneMode::CallerDriven, config);
    let member = |device, slba| MemberLayout { device, extents: vec![BlockExtent::new(slba, 64).unwrap()] };
    for _ in 0..2 {
        devices.open("model:size=1MiB,mdts=1").unwrap();
    }
    let members = vec![member(0, 0), member(1, 0)];
    let stripe = SegmentLayout { members, chunk: BLOCK, ..SegmentLayout::whole("stripe", 0, 64) };
    let own = SegmentLayout { members: vec![member(0, 64)], ..SegmentLayout::whole("own", 0, 64) };
    let (engine, lane) = devices.start(vec![stripe, own]).unwrap();
    let memory = engine.allocate_memory(64 * BLOCK as usize).unwrap();
    Bench { engine, lane: lane.unwrap(), memory }
}

fn on(target_id: SegmentId, request: Request) -> Request {
    Request { target_id, ..request }
}

fn fault(bench: &Bench, device: usize, when: When, action: Action) {
    let rule = Rule { queue: CommandQueue::Io, opcode: None, when, action };
    bench.engine.device(device).unwrap().faults().unwrap().add(rule);
}

/// Turns one port alone: what the others have issued stays with their devices.
#[track_caller]
fn turn_alone(port: &mut Port, mut done: impl FnMut(&Port) -> bool) {
    for _ in 0..TURNS {
        if done(port) {
            return;
        }
        if !port.turn() {
            port.pause();
        }
    }
    panic!("nothing more happens");
}

/// Pulls the first device, and has its port find that out.
#[track_caller]
fn pull(bench: &mut Bench) {
    bench.engine.device(0).unwrap().faults().unwrap().arm(At::Now, Life::AllOnes { dma_turns: 0 });
    turn_alone(&mut bench.lane.ports[0], |port| !port.may_issue());
}

/// The other device writes into the task's memory still, so that it has not ended.
#[test]
fn a_port_that_gives_up_in_the_middle_of_a_stripe_ends_its_own_share() {
    let mut bench = open(3);
    let batch = bench.submit(&[on(STRIPE, bench.read(0, 0, 32 * BLOCK))]);
    assert!(bench.lane.turn());
    assert!(bench.lane.ports[0].active[0].as_ref().unwrap().share.is_some(), "two slots, and more to plan");
    pull(&mut bench);
    assert_eq!((states(&batch), batch.overall().ended), (vec![Pending], 0));
    bench.run();
    assert_eq!((states(&batch), batch.overall().ended), (vec![Failed], 1));
    assert_eq!(bench.engine.violations(), []);
}

#[test]
fn a_share_that_has_ended_does_not_end_again_with_its_port() {
    let mut bench = open(16);
    fault(&bench, 0, When::Nth(2), Action::Delay { turns: u32::MAX });
    let batch = bench.submit(&[on(STRIPE, bench.read(0, 0, 2 * BLOCK)), on(OWN, bench.read(0, 0, BLOCK))]);
    assert!(bench.lane.turn());
    turn_alone(&mut bench.lane.ports[0], |port| port.active[0].as_ref().unwrap().in_flight == 1);
    pull(&mut bench);
    assert_eq!((states(&batch), batch.overall().ended), (vec![Pending, Failed], 1));
    bench.run();
    assert_eq!((states(&batch), batch.overall().ended), (vec![Completed, Failed], 2));
    assert_eq!(bench.engine.violations(), []);
}

/// Another lane's tasks are none that a lane could cancel.
#[test]
fn a_canceled_batch_of_two_devices_is_counted_once() {
    let mut bench = open(16);
    let second = bench.engine.allocate_batch(3).unwrap();
    let requests = [on(OWN, bench.read(0, 0, BLOCK)), on(STRIPE, bench.read(0, BLOCK, BLOCK))];
    bench.engine.submit(&second, &requests).unwrap();
    bench.engine.submit_flush(&second, OWN).unwrap();
    second.cancel();
    bench.run();
    assert_eq!(states(&second), [TransferState::Canceled; 3]);
    assert_eq!(second.overall(), BatchStatus { tasks: 3, ended: 3, unsuccessful: 3 });
    bench.engine.close_with(bench.lane).unwrap();
}

#[test]
fn a_part_of_a_stripe_that_fails_for_good_fails_the_whole_once() {
    let mut bench = open(16);
    let status = StatusCode::WRITE_FAULT.status().with_dnr(true);
    fault(&bench, 1, When::Nth(2), Action::Status { status, execute: false });
    let batch = bench.submit(&[on(STRIPE, bench.write(0, 0, 8 * BLOCK)), on(STRIPE, bench.read(0, 0, BLOCK))]);
    bench.run();
    assert_eq!((states(&batch), batch.nvme_status(0).unwrap()), (vec![Failed, Completed], Some(status)));
    assert_eq!(batch.overall(), BatchStatus { tasks: 2, ended: 2, unsuccessful: 1 });
    bench.engine.close_with(bench.lane).unwrap();
}

/// A device has said why a task fails, and is gone before the rest of it has ended.
#[test]
fn what_a_device_said_of_a_task_outlives_the_device() {
    let status = StatusCode::WRITE_FAULT.status().with_dnr(true);
    for segment in [OWN, STRIPE] {
        let mut bench = open(16);
        fault(&bench, 0, When::Nth(1), Action::Status { status, execute: false });
        // A command that one rule has befallen is none of the next one's.
        fault(&bench, 0, When::Nth(1), Action::Delay { turns: u32::MAX });
        // Two commands of the first device.
        let batch = bench.submit(&[on(segment, bench.read(0, 0, if segment == OWN { 4 } else { 8 } * BLOCK))]);
        assert!(bench.lane.turn());
        turn_alone(&mut bench.lane.ports[0], |port| port.active[0].as_ref().unwrap().in_flight == 1);
        pull(&mut bench);
        bench.run();
        assert_eq!((states(&batch), batch.nvme_status(0).unwrap()), (vec![Failed], Some(status)), "{segment:?}");
        assert_eq!(batch.overall(), BatchStatus { tasks: 1, ended: 1, unsuccessful: 1 });
        assert_eq!(bench.engine.violations(), []);
    }
}

/// Of a task that waits for something before its first command nothing was issued.
#[test]
fn a_task_that_waits_for_a_list_can_be_canceled() {
    let mut bench = open(16);
    let port = &mut bench.lane.ports[0];
    let limits = port.ground.limits;
    let lists = port.lists.as_mut().unwrap();
    let taken: Vec<_> = std::iter::from_fn(|| lists.write(&limits, 0, 1)).map(|list| list.unwrap().0).collect();
    let batch = bench.engine.allocate_batch(1).unwrap();
    bench.engine.submit_deallocate(&batch, OWN, 0, BLOCK).unwrap();
    assert!(bench.lane.turn());
    let active = bench.lane.ports[0].active[0].as_ref().unwrap();
    assert_eq!((active.cursor.task, active.share, states(&batch)), (0, None, vec![Pending]));
    batch.cancel();
    bench.run();
    assert_eq!(states(&batch), [TransferState::Canceled]);
    let second = bench.engine.allocate_batch(1).unwrap();
    bench.engine.submit_deallocate(&second, OWN, 0, BLOCK).unwrap();
    bench.lane.turn();
    let lists = bench.lane.ports[0].lists.as_mut().unwrap();
    taken.into_iter().for_each(|list| lists.give_back(list));
    bench.run();
    assert_eq!(states(&second), [Completed]);
    bench.engine.close_with(bench.lane).unwrap();
}

/// The command that has its last byte is the end of its planning, also where it takes the last slot.
#[test]
fn a_share_is_planned_to_its_end_by_its_last_command() {
    let mut bench = open(2);
    bench.submit(&[on(STRIPE, bench.read(0, 0, 2 * BLOCK))]);
    assert!(bench.lane.turn());
    // The second device has the last byte.
    let active = bench.lane.ports[1].active[0].as_ref().unwrap();
    assert_eq!((active.cursor.task, active.share, active.in_flight), (1, None, 1));
    bench.run();
    bench.engine.close_with(bench.lane).unwrap();
}

/// Admission lets no such numbers through; a task that has them ends all the same, and those behind it are served.
#[test]
fn a_transfer_that_no_command_can_carry_fails() {
    let mut bench = open(16);
    let batch = bench.engine.allocate_batch(2).unwrap();
    let head = Head::transfer(OpCode::Read, Durability::None, 0, 1);
    let iova = bench.memory.iovas().unwrap().start();
    let transfers = [0, BLOCK].map(|length| Transfer { head, slba: 64 + length / BLOCK, iova, length });
    let (_, lanes) = batch.append(&transfers, |transfer| Some(*transfer), |_| unreachable!(), |_| ()).unwrap();
    assert_eq!(lanes.iter().collect::<Vec<_>>(), [0]);
    assert!(bench.lane.ports[0].inbox.push(Arc::clone(&batch.shared)).is_ok());
    bench.run();
    assert_eq!(states(&batch), [Failed, Completed]);
    assert_eq!(batch.nvme_status(0).unwrap(), Some(StatusCode::INVALID_FIELD_IN_COMMAND.status()));
    assert_eq!(batch.overall(), BatchStatus { tasks: 2, ended: 2, unsuccessful: 1 });
    assert_eq!(bench.engine.violations(), []);
}

/// What does not end in time ends with the controller's reach, and is told then.
#[test]
fn a_command_that_outlasts_the_closing_is_failed() {
    let config = EngineConfig { drain_timeout: Duration::ZERO, ..EngineConfig::default() };
    let (engine, lane) = Engine::open_caller_driven("model:size=1MiB", config).unwrap();
    let memory = engine.allocate_memory(BLOCK as usize).unwrap();
    let mut bench = Bench { engine, lane, memory };
    fault(&bench, 0, When::Nth(1), Action::Delay { turns: u32::MAX });
    let batch = bench.submit(&[bench.read(0, 0, BLOCK)]);
    bench.lane.turn();
    let _ = bench.engine.close_with(bench.lane);
    assert_eq!((states(&batch), batch.failure(0).unwrap()), (vec![Failed], Some(FailureReason::Lost)));
}
