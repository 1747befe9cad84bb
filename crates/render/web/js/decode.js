// The embedded data: base64, deflated; a few words of JSON, the rest integers of variable length.

/**
 * @param {string} base64
 * @returns {Promise<Uint8Array>}
 */
export async function inflate(base64) {
  const packed = fromBase64(base64.trim());
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate-raw'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** @param {string} text @returns {Uint8Array<ArrayBuffer>} */
function fromBase64(text) {
  const native = /** @type {any} */ (Uint8Array).fromBase64;
  if (native) return native.call(Uint8Array, text);
  const binary = atob(text);
  const out = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i += 1) out[i] = binary.charCodeAt(i);
  return out;
}

/** The columns of one recording, read by name. */
export class Columns {
  /** @param {Uint8Array} data `[u32 LE length of the JSON][JSON][columns]` */
  constructor(data) {
    const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
    const length = view.getUint32(0, true);
    const text = new TextDecoder();
    /** @type {any} */
    this.meta = JSON.parse(text.decode(data.subarray(4, 4 + length)));
    if (this.meta.version !== 1) {
      throw new Error(`this page reads version 1 of its data, not ${this.meta.version}`);
    }
    this.bytes = data.subarray(4 + length);
    this.text = text;
  }

  /** Whether there is such a column. @param {string} name */
  has(name) {
    return name in this.meta.columns;
  }

  /** Small numbers. @param {string} name @returns {Uint32Array} */
  u32(name) {
    return this.fill(name, (n) => new Uint32Array(n));
  }

  /** Numbers of up to 53 bits. @param {string} name @returns {Float64Array} */
  f64(name) {
    return this.fill(name, (n) => new Float64Array(n));
  }

  /** Differences, added up. @param {string} name @returns {Uint32Array} */
  sums(name) {
    const raw = this.u32(name);
    let last = 0;
    for (let i = 0; i < raw.length; i += 1) {
      const v = raw[i];
      last += v & 1 ? -((v + 1) / 2) : v / 2;
      raw[i] = last;
    }
    return raw;
  }

  /** @param {string} name @returns {string[]} */
  strings(name) {
    const lengths = this.u32(`${name}.len`);
    const out = new Array(lengths.length);
    let [at] = this.meta.columns[name];
    for (let i = 0; i < lengths.length; i += 1) {
      out[i] = this.text.decode(this.bytes.subarray(at, at + lengths[i]));
      at += lengths[i];
    }
    return out;
  }

  /**
   * @template {Uint32Array | Float64Array} T
   * @param {string} name
   * @param {(n: number) => T} make
   * @returns {T}
   */
  fill(name, make) {
    const [start, n] = this.meta.columns[name];
    const out = make(n);
    const b = this.bytes;
    let at = start;
    for (let i = 0; i < n; i += 1) {
      let byte = b[at];
      at += 1;
      let value = byte & 0x7f;
      let scale = 128;
      while (byte > 127) {
        byte = b[at];
        at += 1;
        value += (byte & 0x7f) * scale;
        scale *= 128;
      }
      out[i] = value;
    }
    return out;
  }
}
