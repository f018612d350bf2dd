/** What the API returns, as far as the pages use it. */

export type ClaimKind = "derivative" | "surrogate" | "formula";

export interface Claim {
  first: ClaimKind;
  second: ClaimKind | null;
  linear: boolean;
}

export type Group = "yours" | "surrogate" | "numerics" | "native" | "glue";

export interface ListedOp extends OpSummary {
  group: Group;
  last_check?: LastCheck;
}

export interface LastCheck {
  verdict: string;
  age_s: number;
  changed?: string[];
}

export interface OpSummary {
  name: string;
  summary: string;
  mechanism: string;
  claim: Claim | null;
  available: boolean;
  stale?: boolean;
  reason?: string;
}

export interface Slot {
  name: string;
  dtypes: string[];
  shape: (string | number)[];
  differentiable: boolean;
  doc: string;
  domain: [number, number];
  kinks: number[];
  poles: number[];
  optional?: boolean;
}

export interface AttrSchema {
  type?: string;
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  description?: string;
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
}

export interface Example {
  name: string;
  inputs: Record<string, unknown>;
  attrs: Record<string, unknown>;
}

export interface Contract extends OpSummary {
  of?: string;
  derivations: string[];
  doc: string;
  source: string;
  batching: string;
  dtypes: string[];
  modes: string[];
  default_mode: Record<string, Record<string, string>>;
  inputs: Slot[];
  outputs: Slot[];
  attrs: { properties?: Record<string, AttrSchema>; description?: string };
  examples: Example[];
  /** The inputs whose values the server has, and the digest of those of the page. */
  parameters?: { name: string; dtype: string; shape: number[]; doc?: string; differentiable?: boolean }[];
  parameters_digest?: string;
  /** The ops that a graph composes; no other op has any. */
  nodes?: string[];
}

/** A node's input, or a constant. */
export type GraphSource = string | { constant: unknown };

export interface GraphNode {
  name: string;
  op: string;
  inputs: Record<string, GraphSource> | GraphSource[];
  attrs?: Record<string, unknown>;
}

export interface GraphDocument {
  inputs: (string | { name: string })[];
  nodes: GraphNode[];
  outputs: Record<string, string>;
}

/** Numbers along a curve; null where there is none. */
export type Column = (number | null)[];

/** A derivative along a curve, beside the numeric one and what it claims to be. */
export interface Level {
  /** f′ or f″, and what it is the derivative of. */
  name: string;
  of: string;
  kind: ClaimKind;
  analytic: Column;
  numeric: Column;
  bar: Column;
  status: string[];
  claim: Column;
  claimBar: Column;
  claimStatus: string[];
}

/** A function of one variable, with its derivatives. */
export interface Curve {
  /** Whether the numeric derivatives are known at some points only, and lines go through the gaps. */
  isSparse: boolean;
  x: number[];
  y: Column;
  levels: Level[];
  kinks: number[];
  poles: number[];
  optional?: boolean;
}
