//! Names of all kinds, with the text that `c++filt -s dlang` of binutils 2.40 prints for them.

use super::demangle;

#[rustfmt::skip]
const NAMES: &[(&str, &str)] = &[
    ("_D40TypeInfo_PxS2rt19sections_elf_shared3DSO6__initZ", "initializer for TypeInfo_PxS2rt19sections_elf_shared3DSO"),
    ("_D2rt4util8typeinfo__T15TypeInfoGenericTkTkZQw6__initZ", "initializer for rt.util.typeinfo.TypeInfoGeneric!(uint, uint).TypeInfoGeneric"),
    ("_D3std6digest__T13WrapperDigestTSQBfQBe3crc__T3CRCVki64VmN2882303761517117440ZQBgZQCo11__interface3std6digest6Digest6Thn16_6__vtblZ", "vtable for std.digest.WrapperDigest!(std.digest.crc.CRC!(64u, -2882303761517117440uL).CRC).WrapperDigest.__interface.std.digest.Digest.Thn16_"),
    ("_D4core6stdcpp9exception13bad_exception6__vtblZ", "vtable for core.stdcpp.exception.bad_exception"),
    ("_D10TypeInfo_o7__ClassZ", "ClassInfo for TypeInfo_o"),
    ("_D3std8encoding29UnrecognizedEncodingException7__ClassZ", "ClassInfo for std.encoding.UnrecognizedEncodingException"),
    ("_D4core8internal3elf2dl12__ModuleInfoZ", "ModuleInfo for core.internal.elf.dl"),
    ("_D6object10ModuleInfo8unitTestMxFNaNbNdNiZPFZv", "object.ModuleInfo.unitTest() const"),
    ("_D3std12experimental9allocator10IAllocator11__InterfaceZ", "Interface for std.experimental.allocator.IAllocator"),
    ("_D3app2t11I11__InterfaceZ", "Interface for app.t1.I"),
    ("_D4core8internal9container5treap__T5TreapTSQBp2gc11gcinterface4RootZQBh6__dtorMFNbNiZv", "core.internal.container.treap.Treap!(core.gc.gcinterface.Root).Treap.~this()"),
    ("_D3std3uni8Grapheme6__dtorMFNaNbNiNeZv", "std.uni.Grapheme.~this()"),
    ("_D3std5stdio17LockingTextReader10__postblitMFZv", "std.stdio.LockingTextReader.this(this)"),
    ("_D3std7variant__T8VariantNVmi32ZQp10__postblitMFZv", "std.variant.VariantN!(32uL).VariantN.this(this)"),
    ("_D3std5range__T12assumeSortedS3app2t14mainFZ10__lambda10TAiZQBtMFNaNbNiNfQqZSQCxQCw__T11SortedRangeTQBrSQCwQCvQCvFZQCtVEQEoQEn18SortedRangeOptionsi0ZQCl", "std.range.assumeSorted!(app.t1.main().__lambda10, int[]).assumeSorted(int[])"),
    ("_D3std9algorithm9iteration__T9MapResultS3app2t14mainFZ9__lambda8TSQCm5range__T4iotaTiTiZQkFiiZ6ResultZQCv8popFrontMFNaNbNiNfZv", "std.algorithm.iteration.MapResult!(app.t1.main().__lambda8, std.range.iota!(int, int).iota(int, int).Result).MapResult.popFront()"),
    ("_D3std3net4curl4HTTP9__mixin469onReceiveMFNdDFAhZmZv", "std.net.curl.HTTP.__mixin46.onReceive(ulong(ubyte[]) delegate)"),
    ("_D3std8bitmanip8BitArray7opApplyMFMDFKbZiZi", "std.bitmanip.BitArray.opApply(scope int(ref bool) delegate)"),
    ("_D3std10functional__T8unaryFunVAyaa11_615b305d203e2030783830VQBea1_61Z__TQCaTxSQCz3uni17CodepointIntervalZQDhFNaNbNiNfKxQBqZb", "std.functional.unaryFun!(\"a[0] > 0x80\", \"a\").unaryFun!(const(std.uni.CodepointInterval)).unaryFun(ref const(std.uni.CodepointInterval))"),
    ("_D3std8internal4math13errorfunction1UyG7e", "std.internal.math.errorfunction.U"),
    ("_D2rt5minfo11ModuleGroup9sortCtorsMFAyaZ10processModMFmZb", "rt.minfo.ModuleGroup.sortCtors(immutable(char)[]).processMod(ulong)"),
    ("_D3std4conv__T5parseTdTAyaVEQBa8typecons__T4FlagVQBaa7_646f436f756e74ZQBbi0ZQCkFKQCgZ13__dgliteral12MFNaNbNiNfZC6object9Throwable", "std.conv.parse!(double, immutable(char)[], 0).parse(ref immutable(char)[]).__dgliteral12()"),
    ("_D4core4sync9condition9Condition6__ctorMOFNbNfOCQBuQBs5mutex5MutexZOCQCpQCnQClQCe", "core.sync.condition.Condition.this(shared(core.sync.mutex.Mutex)) shared"),
    ("_D3std5stdio4File8wrapFileFNfPOS4core4stdcQBk8_IO_FILEZ12__dgliteral2MFNaNbNiNfZAxa", "std.stdio.File.wrapFile(shared(core.stdc.stdio._IO_FILE)*).__dgliteral2()"),
    ("_D3std3uni__T19PackedArrayViewImplTSQBiQBh__T9BitPackedTkVmi11ZQsVmi16ZQCg6__ctorMNgFNaNbNcNiNfPNgmmmZNgSQDzQDy__TQDxTQDfVmi16ZQEk", "std.uni.PackedArrayViewImpl!(std.uni.BitPacked!(uint, 11uL).BitPacked, 16uL).PackedArrayViewImpl.this(inout(ulong)*, ulong, ulong) inout"),
    ("_D3std5range10primitives__T8popFrontTSQBk8internal14unicode_tables9CompEntryZQByFNaNbNiNfMKANgSQDpQCfQBzQBmZv", "std.range.primitives.popFront!(std.internal.unicode_tables.CompEntry).popFront(scope ref inout(std.internal.unicode_tables.CompEntry)[])"),
    ("_D3std11concurrency__T8initOnceS_DQBg8datetime8timezone9LocalTime9singletonFNeZ5guardObZQCoFNcLObZOb", "std.concurrency.initOnce!(std.datetime.timezone.LocalTime.singleton().guard).initOnce(lazy shared(bool))"),
    ("_D3std11concurrency__T8initOnceS_DQBg12experimental6logger4core22stdSharedDefaultLoggerCQDiQCcQBrQBn6LoggerZQDiFNcLQBcZQBg", "std.concurrency.initOnce!(std.experimental.logger.core.stdSharedDefaultLogger).initOnce(lazy std.experimental.logger.core.Logger)"),
    ("_D3std3utf__T11decodeFrontVEQBa8typecons__T4FlagVAyaa19_7573655265706c6163656d656e744463686172ZQCai0TAwZQDnFNaNeMKQnJmZw", "std.utf.decodeFront!(0, dchar[]).decodeFront(scope ref dchar[], out ulong)"),
    ("_D3std6socket6Socket9getOptionMFNeEQBhQBg17SocketOptionLevelEQChQCg12SocketOptionJiZi", "std.socket.Socket.getOption(std.socket.SocketOptionLevel, std.socket.SocketOption, out int)"),
    ("_D6object__T4_dupTxaTyaZQmFNaNbNeMAxaZAya", "object._dup!(const(char), immutable(char))._dup(scope const(char)[])"),
    ("_D4core8demangle__T8DemangleTSQBcQBa7NoHooksZQBa3putMFNaNjNfMAxaZAa", "core.demangle.Demangle!(core.demangle.NoHooks).Demangle.put(scope const(char)[])"),
    ("_D2rt6dmain212_d_run_main2UAAamPUQgZiZ6runAllMFZv", "rt.dmain2._d_run_main2(char[][], ulong, extern(C) int(char[][]) function).runAll()"),
    ("_D2rt6dmain212_d_run_main2UAAamPUQgZiZ7tryExecMFMDFZvZv", "rt.dmain2._d_run_main2(char[][], ulong, extern(C) int(char[][]) function).tryExec(scope void() delegate)"),
    ("_D3app2t11C2vfMFNeMAxaLiJiKCQBaQzQyIuXv", "app.t1.C.vf(scope const(char)[], lazy int, out int, ref app.t1.C, in wchar...)"),
    ("_D3std3utf12UTFException11setSequenceMFNaNbNiNjNfMAkXCQCaQBzQBy", "std.utf.UTFException.setSequence(scope uint[]...)"),
    ("_D3std6format8internal5write__T6getNthVAyaa17_696e746567657220707265636973696f6eSQDb6traits10isIntegralTiTHiiZQDbFNaNfkQnZi", "std.format.internal.write.getNth!(\"integer precision\", std.traits.isIntegral, int, int[int]).getNth(uint, int[int])"),
    ("_D3std5range__T11SortedRangeTAkVAyaa6_61203c3d2062VEQByQBx18SortedRangeOptionsi0ZQCo7popBackMFNaNbNiNfZv", "std.range.SortedRange!(uint[], \"a <= b\", 0).SortedRange.popBack()"),
    ("_D3std3uni__T13PackedPtrImplTSQBcQBb__T9BitPackedTkVmi12ZQsVmi16ZQCa13opIndexAssignMFNaNbNiQCkmZv", "std.uni.PackedPtrImpl!(std.uni.BitPacked!(uint, 12uL).BitPacked, 16uL).PackedPtrImpl.opIndexAssign(std.uni.BitPacked!(uint, 12uL).BitPacked, ulong)"),
    ("_D3std3uni__T15packedArrayViewTSQBeQBd__T9BitPackedTkVmi8ZQrZQBwFNaNbNiNfPNgmmZNgSQDcQDb__T19PackedArrayViewImplTQDeVmi8ZQBe", "std.uni.packedArrayView!(std.uni.BitPacked!(uint, 8uL).BitPacked).packedArrayView(inout(ulong)*, ulong)"),
    ("_D3std6base64__T10Base64ImplVai45Vai95Vai0Z12encodeLengthFNaNbNiNfImZm", "std.base64.Base64Impl!('-', '_', '\\x00').encodeLength(in ulong)"),
    ("_D3std6base64__T10Base64ImplVai43Vai47Vai61Z12encodeLengthFNaNbNiNfImZm", "std.base64.Base64Impl!('+', '/', '=').encodeLength(in ulong)"),
    ("_D6object__T7destroyVbi1TS3std5stdio4FileZQBeFNfKQyZv", "object.destroy!(true, std.stdio.File).destroy(ref std.stdio.File)"),
    ("_D3std5stdio4File__T16BinaryWriterImplVbi1ZQx10__aggrDtorMFZv", "std.stdio.File.BinaryWriterImpl!(true).BinaryWriterImpl.__aggrDtor()"),
    ("_D3app2t1__T2tvVde18P0VeeN12P1Vwi120VAyuw4_77696465VSQBzQBy1PS4e1P0A4e1P0e1P1e18P1e1P2e1P1w1_7aVAiA3i1i2i3VHAyaiA1a1_61i1ZQEgFNaNbNiNfZv", "app.t1.tv!(0x1.8p0, -0x1.2p1, '\\U00000078', \"wide\"w, app.t1.P(0x1.p0, [0x1.p0, 0x1.p1, 0x1.8p1, 0x1.p2], 0x1.p1, \"z\"w), [1, 2, 3], [\"a\":1]).tv()"),
    ("_D3std9algorithm9searching__T10countUntilVAyaa11_615b305d203e2030783830TAxSQCv3uni17CodepointIntervalZQCvFNaNbNiNfQBqZl", "std.algorithm.searching.countUntil!(\"a[0] > 0x80\", const(std.uni.CodepointInterval)[]).countUntil(const(std.uni.CodepointInterval)[])"),
    ("_D3std8encoding14EncodingScheme__T8registerHTCQBsQBr20EncodingSchemeLatin1ZQBpFZ9__lambda5FNaNbNfZCQDtQDsQDm", "std.encoding.EncodingScheme.register!(std.encoding.EncodingSchemeLatin1).register().__lambda5()"),
    ("_D3std5range__T11SortedRangeTAiS3app2t14mainFZ10__lambda10VEQCgQCf18SortedRangeOptionsi0ZQCw4backMFNaNbNcNdNiNfZi", "std.range.SortedRange!(int[], app.t1.main().__lambda10, 0).SortedRange.back()"),
    ("_D2rt4util8typeinfo__T15TypeInfoGenericTkTkZQw7getHashMxFNaNbNeMxPvZm", "rt.util.typeinfo.TypeInfoGeneric!(uint, uint).TypeInfoGeneric.getHash(scope const(void*)) const"),
    ("_D3std5regex__T8CapturesTAxaZQo5emptyMxFNaNbNdNiNeZb", "std.regex.Captures!(const(char)[]).Captures.empty() const"),
    ("_D3std8datetime8timezone13PosixTimeZone7tzToUTCMxFNbNlNflZl", "std.datetime.timezone.PosixTimeZone.tzToUTC(long) const"),
    ("_D3std3uni__T8CowArrayTSQwQu13ReallocPolicyZQBf11__xopEqualsMxFKxSQCmQCl__TQCkTQCeZQCsZb", "std.uni.CowArray!(std.uni.ReallocPolicy).CowArray.__xopEquals(ref const(std.uni.CowArray!(std.uni.ReallocPolicy).CowArray)) const"),
    ("_D3std12experimental9allocator15building_blocks24ascending_page_allocator28SharedAscendingPageAllocator6expandMOFNbNiKAvmZb", "std.experimental.allocator.building_blocks.ascending_page_allocator.SharedAscendingPageAllocator.expand(ref void[], ulong) shared"),
    ("_D3std12experimental9allocator18RCISharedAllocator17alignedReallocateMOFNbKAvmkZb", "std.experimental.allocator.RCISharedAllocator.alignedReallocate(ref void[], ulong, uint) shared"),
    ("_D4core3sys5posixQk5ioctl__T4_IOCTnZQiFNaNbNiiiiZi", "core.sys.posix.sys.ioctl._IOC!(typeof(null))._IOC(int, int, int)"),
    ("_D3app2t14mainFZ4__S12scMFNaNbNiNfZv", "app.t1.main().sc()"),
    ("_D3std4math6traits__T5isNaNTxeZQkFNaNbNiNexeZb", "std.math.traits.isNaN!(const(real)).isNaN(const(real))"),
    ("_D101TypeInfo_E4core8demangle__T8DemangleTSQBcQBa15reencodeMangledFNaNbNfNkMAxaZ12PrependHooksZQCl7AddType6__initZ", "initializer for TypeInfo_E4core8demangle__T8DemangleTSQBcQBa15reencodeMangledFNaNbNfNkMAxaZ12PrependHooksZQCl7AddType"),
    ("_D3std8encoding__T6decodeTAxuZQmFNaNbNiNfKQqZw", "std.encoding.decode!(const(wchar)[]).decode(ref const(wchar)[])"),
    ("_D4core6stdcpp11string_view__T17basic_string_viewTuTSQBzQBxQBt__T11char_traitsTuZQqZQCc5emptyMxFNaNbNiNfZb", "core.stdcpp.string_view.basic_string_view!(wchar, core.stdcpp.string_view.char_traits!(wchar).char_traits).basic_string_view.empty() const"),
    ("_D3std5stdio4File5getFPMFNaNfZ12__dgliteral1MFNaNbNiNfZAxa", "std.stdio.File.getFP().__dgliteral1()"),
    ("_Dmain", "D main"),
];

/// Names that binutils 2.40 does not know: `return scope` parameters and lambdas with a type that refers
/// back to an earlier one.
#[rustfmt::skip]
const NEWER: &[(&str, &str)] = &[
    ("_D2rt8lifetime12__arrayStartFNaNbNkMS4core6memory8BlkInfo_ZPv", "rt.lifetime.__arrayStart(return scope core.memory.BlkInfo_)"),
    ("_D3std3net4curl4Curl9onReceiveMFNdDFAhZmZ9__lambda2MQr", "std.net.curl.Curl.onReceive(ulong(ubyte[]) delegate).__lambda2(ubyte[])"),
];

#[test]
fn names_of_all_kinds() {
    for (mangled, name) in NAMES.iter().chain(NEWER) {
        assert_eq!(demangle(mangled).as_deref(), Some(*name), "{mangled}");
    }
    assert!(NAMES.len() >= 40);
}

#[test]
fn the_rest_stays_raw() {
    for mangled in [
        "_D",
        "_D3foo",
        "_D9foo",
        "_D3fooQz",
        "_D3foo3barFI3abcZv",
        "_D8demangle4testFDFZNaZaZv",
        "_DThn16_3std6digest",
        "_D3fooQaQa",
    ] {
        assert_eq!(demangle(mangled), None, "{mangled}");
    }
}
