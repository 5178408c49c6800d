use super::interpreter::{Input, run};
use super::trial::Trial;
use super::*;

fn decide(build: impl FnOnce(&mut Assembler), frame: &[u8]) -> u32 {
    let mut program = Assembler::default();
    build(&mut program);
    run(&program.finish().expect("a sound program"), Input { frame, vlan_tagged: false })
}

/// Goes to `no` unless loads at X, arithmetic and scratch memory do what they say with 64 bytes that count up from 0. Leaves
/// 44 in scratch memory, and four times one more in X.
fn calculate(asm: &mut Assembler, no: Label) {
    asm.op(Op::XIpv4HeaderLength(5));
    asm.op(Op::WordAtX(0));
    asm.op(Op::And(0x00ff_ff00));
    asm.unless(Test::Is(0x0015_1600), no);
    asm.op(Op::HalfAtX(2));
    asm.unless(Test::Is(0x1617), no);
    asm.op(Op::ByteAtX(1));
    asm.unless(Test::Is(21), no);
    asm.op(Op::Length);
    asm.unless(Test::AtLeastX, no);
    asm.op(Op::SubX);
    asm.unless(Test::Is(44), no);
    asm.op(Op::Store(3));
    asm.op(Op::Add(1));
    asm.op(Op::ShiftLeft(2));
    asm.op(Op::XIsA);
    asm.op(Op::Recall(3));
    asm.op(Op::ShiftRight(1));
    asm.unless(Test::Is(22), no);
}

#[test]
fn loads_and_jumps_do_what_they_say() {
    let frame: Vec<u8> = (0..64).collect();
    let build = |asm: &mut Assembler| {
        let no = asm.label();
        asm.op(Op::Half(2));
        asm.unless(Test::Is(0x0203), no);
        calculate(asm, no);
        asm.op(Op::Recall(3));
        asm.op(Op::AddX);
        asm.unless(Test::Is(44 + 45 * 4), no);
        asm.when(Test::AnyBit(0x100), no);
        asm.give(7);
        asm.bind(no);
        asm.give(1);
    };
    assert_eq!(decide(build, &frame), 7);
    assert_eq!(decide(build, &frame[..63]), 1);
}

#[test]
fn a_load_beyond_the_end_gives_zero() {
    let build = |asm: &mut Assembler| {
        asm.op(Op::Word(2));
        asm.give(9);
    };
    assert_eq!(decide(build, &[0; 6]), 9);
    assert_eq!(decide(build, &[0; 5]), 0);
}

#[test]
fn a_label_that_is_nowhere_is_refused() {
    let mut asm = Assembler::default();
    let lost = asm.label();
    asm.when(Test::Is(0), lost);
    assert_eq!(asm.finish(), Err(AssembleError::Unbound { at: 0 }));
}

#[test]
fn a_jump_backwards_is_refused() {
    let mut asm = Assembler::default();
    let back = asm.label();
    asm.bind(back);
    asm.jump(back);
    assert_eq!(asm.finish(), Err(AssembleError::Backwards { at: 0 }));
}

#[test]
fn conditional_jumps_reach_any_distance() {
    for between in [0, 254, 255, 256, 300, 3000] {
        for (len, holds) in [(20, true), (19, false)] {
            let build = |asm: &mut Assembler| {
                let (far, further) = (asm.label(), asm.label());
                asm.op(Op::Length);
                asm.when(Test::Is(20), far);
                asm.unless(Test::Is(20), further);
                (0..between).for_each(|_| asm.op(Op::XIs(0)));
                asm.give(3);
                asm.bind(far);
                asm.give(4);
                asm.bind(further);
                asm.give(5);
            };
            assert_eq!(decide(build, &vec![0; len]), if holds { 4 } else { 5 }, "{between} instructions between");
        }
    }
}

#[test]
fn a_program_longer_than_the_kernel_takes_is_refused() {
    for (steps, fits) in [(4095, true), (4096, false)] {
        let mut asm = Assembler::default();
        (0..steps).for_each(|_| asm.op(Op::Length));
        asm.give(0);
        assert_eq!(asm.finish().is_ok(), fits, "{steps}");
    }
}

#[test]
fn every_instruction_of_the_assembler_means_the_same_to_the_kernel() {
    let frame: Vec<u8> = (0..64).collect();
    let build = |asm: &mut Assembler| {
        let (no, far) = (asm.label(), asm.label());
        asm.op(Op::VlanTagged);
        asm.unless(Test::Is(0), no);
        asm.op(Op::Byte(63));
        asm.unless(Test::Is(63), no);
        asm.op(Op::Half(2));
        asm.unless(Test::Is(0x0203), no);
        asm.op(Op::Word(60));
        asm.unless(Test::AtLeast(0x3c3d_3e3f), no);
        asm.when(Test::AtLeast(0x3c3d_3e40), no);
        calculate(asm, no);
        asm.op(Op::AIs(45));
        asm.op(Op::AddX);
        asm.unless(Test::Is(45 + 45 * 4), no);
        asm.when(Test::AnyBit(0x100), no);
        asm.when(Test::AnyBit(1), far);
        (0..300).for_each(|_| asm.op(Op::XIs(9)));
        asm.jump(no);
        asm.bind(far);
        asm.op(Op::XIs(46));
        asm.op(Op::AIs(45));
        asm.when(Test::AtLeastX, no);
        asm.give(u32::MAX);
        asm.bind(no);
        asm.give(2);
    };
    let mut asm = Assembler::default();
    build(&mut asm);
    let program = asm.finish().expect("a sound program");
    let kernel = Trial::of(&program).expect("the kernel takes it");
    let says = |frame: &[u8]| {
        let given = run(&program, Input { frame, vlan_tagged: false });
        assert_eq!(kernel.run(frame), frame.len().min(given as usize), "the kernel, and the interpreter of the tests");
        given
    };
    assert_eq!(says(&frame), u32::MAX);
    // Every byte that the program compares counts, and a load beyond the end gives 0.
    for at in [2, 3, 5, 21, 22, 23, 60, 61, 62, 63] {
        let mut other = frame.clone();
        other[at] ^= 1;
        assert_eq!(says(&other), 2, "byte {at}");
    }
    assert_eq!(says(&frame[..63]), 0);
}
