use super::probe::{Verdict, run};
use super::*;
use crate::sys::bpf::{Assembler, Op, Test};
use crate::sys::tc;

fn loaded(build: impl FnOnce(&mut Assembler)) -> OwnedFd {
    let mut asm = Assembler::default();
    build(&mut asm);
    load(&asm.finish().expect("a sound program"), 1).unwrap_or_else(|error| panic!("{error}"))
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
        asm.give(tc::GO_ON);
        asm.bind(no);
        asm.give(tc::DROP);
    };
    assert_eq!(run(&loaded(build), &frame), Some(Verdict::Redirected));
    // Every byte that the program compares counts, and a load beyond the end gives 0.
    for at in [2, 3, 5, 21, 22, 23, 60, 61, 62, 63] {
        let mut other = frame.clone();
        other[at] ^= 1;
        assert_eq!(run(&loaded(build), &other), Some(Verdict::Dropped), "byte {at}");
    }
    assert_eq!(run(&loaded(build), &frame[..63]), Some(Verdict::Other(0)));
}

#[test]
fn what_the_verifier_says_is_in_the_error() {
    let mut asm = Assembler::default();
    asm.op(Op::Recall(15));
    let program = asm.finish().expect("assembles, without an end");
    let error = load(&program, 1).expect_err("refused");
    let EbpfError::Refused { verdict, cause } = error else { panic!("{error}") };
    assert_eq!(cause.raw_os_error(), Some(libc::EINVAL));
    assert!(verdict.contains("last insn"), "{verdict}");
}
