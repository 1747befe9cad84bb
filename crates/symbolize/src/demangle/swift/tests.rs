//! Names of all kinds, with the text that `swift-demangle` of Swift 6.3 prints for them.

use super::demangle;

#[rustfmt::skip]
const NAMES: &[(&str, &str)] = &[
    ("$S18resilient_protocol21ResilientBaseProtocolTL", "protocol requirements base descriptor for resilient_protocol.ResilientBaseProtocol"),
    ("$S1T19protocol_resilience17ResilientProtocolPTl", "associated type descriptor for protocol_resilience.ResilientProtocol.T"),
    ("$S1t1PP10AssocType2_AA1QTn", "associated conformance descriptor for t.P.AssocType2: t.Q"),
    ("$S28protocol_conformance_records15NativeValueTypeVAA8RuncibleAAMc", "protocol conformance descriptor for protocol_conformance_records.NativeValueType : protocol_conformance_records.Runcible in protocol_conformance_records"),
    ("$S2t21QP22ProtocolTypeAliasThingayAA4BlahV5SomeQa_GSgD", "t2.Blah.SomeQ as t2.Q.ProtocolTypeAliasThing?"),
    ("$S3nix7MyclassCfd7MyaliasL_ayx__GD", "Myalias #1 in nix.Myclass<A>.deinit"),
    ("$S3nix8MystructV6testit1x1u1vyx_qd__qd_0_tr0_lF7MyaliasL_ayx_qd__qd_0__GD", "Myalias #1 in nix.Mystruct<A>.testit<A1, B1>(x: A, u: A1, v: B1) -> ()"),
    ("$S3nix8MystructVyS2icig7MyaliasL_ayx__GD", "Myalias #1 in nix.Mystruct<A>.subscript.getter : (Swift.Int) -> Swift.Int"),
    ("$S4blah8PatatinoaySiGD", "blah.Patatino<Swift.Int>"),
    ("$S7TestMod5OuterV3Fooayx_SiGD", "TestMod.Outer<A>.Foo<Swift.Int>"),
    ("$SSC9SomeErrorLeVD", "__C_Synthesized.related decl 'e' for SomeError"),
    ("$SSiSHsWP", "protocol witness table for Swift.Int : Swift.Hashable in Swift"),
    ("$s12typed_throws15rethrowConcreteyyAA7MyErrorOYKF", "typed_throws.rethrowConcrete() throws(typed_throws.MyError) -> ()"),
    ("$s13__lldb_expr_110$10016c2d8yXZ1B10$10016c2e0LLC", "__lldb_expr_1.(unknown context at $10016c2d8).(B in $10016c2e0)"),
    ("$s16distributed_test1XC7computeyS2iFTF", "distributed accessor for distributed_test.X.compute(Swift.Int) -> Swift.Int"),
    ("$s17distributed_thunk2DAC1fyyFTE", "distributed thunk distributed_thunk.DA.f() -> ()"),
    ("$s17property_wrappers10WithTuplesV9fractionsSd_S2dtvpfP", "property wrapper backing initializer of property_wrappers.WithTuples.fractions : (Swift.Double, Swift.Double, Swift.Double)"),
    ("$s18keypaths_inlinable13KeypathStructV8computedSSvpACTKq", "key path getter for keypaths_inlinable.KeypathStruct.computed : Swift.String : keypaths_inlinable.KeypathStruct, serialized"),
    ("$s18opaque_return_type3fooQryFQOHo", "opaque type descriptor runtime record for <<opaque return type of opaque_return_type.foo() -> some>>"),
    ("$s1A1gyyxlFx_qd__t_Ti5", "inlined generic function <(A, A1)> of A.g<A>(A) -> ()"),
    ("$s1A3bar1aySSYt_tF", "A.bar(a: _const Swift.String) -> ()"),
    ("$s1t10globalFuncyyAA7MyActorCYiF", "t.globalFunc(isolated t.MyActor) -> ()"),
    ("$s20mangling_retroactive5test0yyAA1ZVy12RetroactiveB1XVSiAE1YVAG0D1A1PHPyHCg_AiJ1QHPyHCg1_GF", "mangling_retroactive.test0(mangling_retroactive.Z<RetroactiveB.X, Swift.Int, RetroactiveB.Y>) -> ()"),
    ("$s21back_deploy_attribute0A12DeployedFuncyyFTwb", "back deployment thunk for back_deploy_attribute.backDeployedFunc() -> ()"),
    ("$s2hi1SV1iSivy", "hi.S.i.read2 : Swift.Int"),
    ("$s2hi1SVIetMIy_TC", "coroutine continuation prototype for @escaping @convention(thin) @convention(method) @yield_once_2 (@unowned hi.S) -> ()"),
    ("$s3red3use2fnySiyYAXE_tF", "red.use(fn: @isolated(any) () -> Swift.Int) -> ()"),
    ("$s3red4testyAA7OurTypeOy4them05TheirD0Vy5AssocQzGAjE0F8ProtocolAAxAA0c7DerivedH0HD1_AA0c4BaseH0HI1_AieKHA2__HCg_GxmAaLRzlF", "red.test<A where A: red.OurDerivedProtocol>(A.Type) -> red.OurType<them.TheirType<A.Assoc>>"),
    ("$s3red7MyActorC3runyxxyYaKACYcYTXEYaKlFZ", "static red.MyActor.run<A>(@red.MyActor () async throws -> sending A) async throws -> A"),
    ("$s3red7MyActorC3runyxxyYaKYCXEYaKlFZ", "static red.MyActor.run<A>(nonisolated(nonsending) () async throws -> A) async throws -> A"),
    ("$s4Test5ProtoP8IteratorV10collectionAEy_qd__Gqd___tcfc", "Test.Proto.Iterator.init(collection: A1) -> Test.Proto.Iterator<A1>"),
    ("$s4Test6testityyxlFAA8MystructV_TB5", "generic specialization <Test.Mystruct> of Test.testit<A>(A) -> ()"),
    ("$s4diff1hyyS2iYjfXEF", "diff.h(@differentiable(_forward) (Swift.Int) -> Swift.Int) -> ()"),
    ("$s4main1gyySiXCvp", "main.g : @convention(c) (Swift.Int) -> ()"),
    ("$s4main20receiveInstantiationyySo34__CxxTemplateInst12MagicWrapperIiEVzF", "main.receiveInstantiation(inout __C.__CxxTemplateInst12MagicWrapperIiE) -> ()"),
    ("$s4main3fooyySiFyyXEfU_TA.1", "partial apply forwarder for closure #1 () -> () in main.foo(Swift.Int) -> () with unmangled suffix \".1\""),
    ("$s4main6testityyYaFTu", "async function pointer to main.testit() async -> ()"),
    ("$s4main8MyStructV3fooyyFAA1XV_Tg5.foo", "generic specialization <main.X> of main.MyStruct.foo() -> () with unmangled suffix \".foo\""),
    ("$s4test10returnsOptyxycSgxyScMYccSglF", "test.returnsOpt<A>((@Swift.MainActor () -> A)?) -> (() -> A)?"),
    ("$s4test3StrCACycfC", "test.Str.__allocating_init() -> test.Str"),
    ("$s4test3fooV4blahyAA1SV1fQryFQOy_Qo_AHF", "test.foo.blah(<<opaque return type of test.S.f() -> some>>.0) -> <<opaque return type of test.S.f() -> some>>.0"),
    ("$s4test3fooyyAA1P_pSS1TAaCPRts_Si1UAERtsXPF", "test.foo(any test.P<Self.test.P.T == Swift.String, Self.test.P.U == Swift.Int>) -> ()"),
    ("$s4test3fooyyS2f_SfYktYaYbYjrXEF", "test.foo(@differentiable(reverse) @Sendable (Swift.Float, @noDerivative Swift.Float) async -> Swift.Float) -> ()"),
    ("$s4test7genFuncyyx_q_tr0_lFSi_SbTtt1g5", "generic specialization <Swift.Int, Swift.Bool> of test.genFunc<A, B>(A, B) -> ()"),
    ("$s4testAAyAA5KlassC_ACtACnYTF", "test.test(__owned test.Klass) -> sending (test.Klass, test.Klass)"),
    ("$s5Actor02MyA0C17testAsyncFunctionyyYaKFTQ1_", "(2) await resume partial function for Actor.MyActor.testAsyncFunction() async throws -> ()"),
    ("$s5Actor02MyA0C17testAsyncFunctionyyYaKFTY0_", "(1) suspend resume partial function for Actor.MyActor.testAsyncFunction() async throws -> ()"),
    ("$s5test24testyyAA5KlassCnYuF", "test2.test(sending __owned test2.Klass) -> ()"),
    ("$s7Library1BC1iSivxTwdTwc", "coro function pointer to default override of Library.B.i.modify2 : Swift.Int"),
    ("$s7Library3fooyyFTwS", "#_hasSymbol query for Library.foo() -> ()"),
    ("$sBf32_", "Builtin.FPIEEE32"),
    ("$sBf80_", "Builtin.FPIEEE80"),
    ("$sBpBv4_", "Builtin.Vec4xRawPointer"),
    ("$sIeg_BAIegHgIL_TR", "reabstraction thunk helper from @escaping @callee_guaranteed () -> () to @escaping @callee_guaranteed @async (@guaranteed Builtin.ImplicitActor) -> ()"),
    ("$sSRyxG15Synchronization19AtomicRepresentableABRi0_zrlMc", "protocol conformance descriptor for < where A: ~Swift.Escapable> Swift.UnsafeBufferPointer<A> : Synchronization.AtomicRepresentable in Synchronization"),
    ("$sScA", "Swift.Actor"),
    ("$sScGySiG", "Swift.TaskGroup<Swift.Int>"),
    ("$sSo17OS_dispatch_queueC4sync7executeyyyXE_tFTOTA", "partial apply forwarder for @nonobjc __C.OS_dispatch_queue.sync(execute: () -> ()) -> ()"),
    ("$sSo5GizmoC11doSomethingyypSgSaySSGSgFToTembgnn_", "outlined bridged method (mbgnn) of @objc __C.Gizmo.doSomething([Swift.String]?) -> Any?"),
    ("$sxq_IyXd_D", "@callee_unowned (@in_cxx A) -> (@unowned B)"),
    ("_$S3abc6testityySiFTm", "merged abc.testit(Swift.Int) -> ()"),
    ("_$S3foo3barC3bas3zimyAaEC_tFTo", "@objc foo.bar.bas(zim: foo.zim) -> ()"),
    ("_$S3foo6testityyyyc_yyctF1a1bTf3pfpf_n", "function signature specialization <Arg[0] = [Constant Propagated Function : a], Arg[1] = [Constant Propagated Function : b]> of foo.testit(() -> (), () -> ()) -> ()"),
    ("_$S4main4TestC1xACSi_tc6_PRIV_Llfc", "main.Test.(in _PRIV_).init(x: Swift.Int) -> main.Test"),
    ("_$S4test6testitySiyt_tF", "test.testit(()) -> Swift.Int"),
    ("_$S8mangling14varargsVsArray3arr1nySid_SStF", "mangling.varargsVsArray(arr: Swift.Int..., n: Swift.String) -> ()"),
    ("_$Ss10DictionaryV3t17E6Index2V1loiySbAEyxq__G_AGtFZ", "static (extension in t17):Swift.Dictionary.Index2.< infix((extension in t17):[A : B].Index2, (extension in t17):[A : B].Index2) -> Swift.Bool"),
    ("_$s15raw_identifiers0018_3times_pgaIGJCFbhayyF", "raw_identifiers.`3 times`() -> ()"),
    ("_T013call_protocol1CCAA1PA2aDP3fooSiyFTW", "protocol witness for call_protocol.P.foo() -> Swift.Int in conformance call_protocol.C : call_protocol.P in call_protocol"),
    ("_T03foo4_123ABTf3psbpsb_n", "function signature specialization <Arg[0] = [Constant Propagated String : u8'123'], Arg[1] = [Constant Propagated String : u8'123']> of foo"),
    ("_T03nix6testitSaySiGyFTv0_", "outlined variable #1 of nix.testit() -> [Swift.Int]"),
    ("_T03nix6testitSaySiGyFTv_r", "outlined read-only object #0 of nix.testit() -> [Swift.Int]"),
    ("_T04main1_yyF", "main._() -> ()"),
    ("_T04test1SVyxGAA1RA2A1ZRzAA1Y2ZZRpzl1A_AhaGPWT", "associated type witness table accessor for A.ZZ : test.Y in <A where A: test.Z, A.ZZ: test.Y> test.S<A> : test.R in test"),
    ("_T0Ix_IyB_Tr", "reabstraction thunk from @callee_owned () -> () to @callee_unowned @convention(block) () -> ()"),
    ("_T0So13GenericOptionas8HashableSCsACP9hashValueSivgTW", "protocol witness for Swift.Hashable.hashValue.getter : Swift.Int in conformance __C.GenericOption : Swift.Hashable in __C_Synthesized"),
    ("_T0SqWOH", "outlined destroy of Swift.Optional"),
    ("_T0SqWOy.17", "outlined copy of Swift.Optional with unmangled suffix \".17\""),
    ("_T0s10DictionaryV3t17E6Index2V1loiSbAEyxq__G_AGtFZ", "static (extension in t17):Swift.Dictionary.Index2.< infix((extension in t17):[A : B].Index2, (extension in t17):[A : B].Index2) -> Swift.Bool"),
    ("$s4main3fooyySiF", "main.foo(Swift.Int) -> ()"),
    ("$s4main4TreeC6insert3keySbSi_tF", "main.Tree.insert(key: Swift.Int) -> Swift.Bool"),
    ("$s4main4TreeCfD", "main.Tree.__deallocating_deinit"),
    ("$s4main4TreeCMa", "type metadata accessor for main.Tree"),
    ("$s4main4TreeC5countSivg", "main.Tree.count.getter : Swift.Int"),
    ("$s4main4TreeC5countSivs", "main.Tree.count.setter : Swift.Int"),
    ("$s4main4TreeCyS2icig", "main.Tree.subscript.getter : (Swift.Int) -> Swift.Int"),
    ("$s4main1xSivau", "main.x.unsafeMutableAddressor : Swift.Int"),
    ("$s4main3fooyyFyycfU_", "closure #1 () -> () in main.foo() -> ()"),
    ("$s4main3fooyyFyycfU_TATQ0_", "(1) await resume partial function for partial apply forwarder for closure #1 () -> () in main.foo() -> ()"),
    ("$sSa6appendyyxnFSi_Tg5", "generic specialization <Swift.Int> of Swift.Array.append(__owned A) -> ()"),
    ("$s4main3fooyySi_SStFTf4nd_n", "function signature specialization <Arg[1] = Dead> of main.foo(Swift.Int, Swift.String) -> ()"),
    ("$s4main1PP3fooyyFTj", "dispatch thunk of main.P.foo() -> ()"),
    ("$s4main1PP3fooyyFTq", "method descriptor for main.P.foo() -> ()"),
    ("$s4main4TreeC4NodeVwCP", "initializeBufferWithCopyOfBuffer value witness for main.Tree.Node"),
    ("$s4main4TreeCN", "type metadata for main.Tree"),
    ("$ss11_StringGutsV16_foreignCopyUTF84intoSiSgSrys5UInt8VG_tF", "Swift._StringGuts._foreignCopyUTF8(into: Swift.UnsafeMutableBufferPointer<Swift.UInt8>) -> Swift.Int?"),
    ("$ss5print_9separator10terminatoryypd_S2StF", "Swift.print(_: Any..., separator: Swift.String, terminator: Swift.String) -> ()"),
    ("$sSS7cStringSSSPys4Int8VG_tcfC", "Swift.String.init(cString: Swift.UnsafePointer<Swift.Int8>) -> Swift.String"),
    ("$s10Foundation4DataV13_copyContents12initializingAC8IteratorV_SitSrys5UInt8VG_tF", "Foundation.Data._copyContents(initializing: Swift.UnsafeMutableBufferPointer<Swift.UInt8>) -> (Foundation.Data.Iterator, Swift.Int)"),
    ("$s10Foundation4DataV15_RepresentationOWOe", "outlined consume of Foundation.Data._Representation"),
    ("$sSD11descriptionSSvg", "Swift.Dictionary.description.getter : Swift.String"),
    ("$s10Foundation15ContiguousBytesP010withUnsafeC0yqd__qd__SWKXEKlFTj", "dispatch thunk of Foundation.ContiguousBytes.withUnsafeBytes<A>((Swift.UnsafeRawBufferPointer) throws -> A1) throws -> A1"),
    ("$ss32_diagnoseUnexpectedEnumCaseValue4type03rawE0s5NeverOxm_q_tr0_lF", "Swift._diagnoseUnexpectedEnumCaseValue<A, B>(type: A.Type, rawValue: B) -> Swift.Never"),
    ("$s10Foundation4DataV15withUnsafeBytesyxxSPyq_GKXEKr0_lF", "Foundation.Data.withUnsafeBytes<A, B>((Swift.UnsafePointer<B>) throws -> A) throws -> A"),
];

/// Suffixes of the entry of asynchronous programs, which Swift 6.3 leaves as they are.
const ASYNC_MAIN: &[(&str, &str)] = &[
    (
        "async_MainTY0_",
        "(1) suspend resume partial function for async_Main",
    ),
    ("async_MainTu", "async function pointer to async_Main"),
];

/// Names that are not whole, or that no compiler makes.
const RAW: &[&str] = &[
    "$s",
    "$sZZ",
    "async_Main",
    "async_MainTest",
    "async_Main_loop",
    "_T0A8",
    "_T0lxxxmmmTk",
    "$s__TJO",
    "$sxxxIxzCXxxxesy",
    "$SSD1BySSSBsg_G",
    "$sSD5IndexVy__GD",
    "_$S3BBBBf0602365061_",
    "$s4main3foo",
    "$s4main3fooyySiFs",
    "$s9999main",
    "$s4main0012vergenza_JF!a",
];

#[test]
fn names_of_all_kinds() {
    for (mangled, name) in NAMES.iter().chain(ASYNC_MAIN) {
        assert_eq!(demangle(mangled).as_deref(), Some(*name), "{mangled}");
    }
    assert!(NAMES.len() >= 60);
}

#[test]
fn the_rest_stays_raw() {
    for mangled in RAW {
        assert_eq!(demangle(mangled), None, "{mangled}");
    }
}
