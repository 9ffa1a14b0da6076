// Frames of stored video by their number: packets of the file go to the decoder of the browser, which numbers what comes
// out. No clock is asked, so the frame is the one of the row.

// The pictures of a chunk, one for each row, or null where this browser does not decode it.
export async function decodedChunk(buffer, signal) {
  const size = new DataView(buffer).getUint32(0, true);
  const { config, frames, packets } = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  if (!config || !globalThis.VideoDecoder) return null;
  const setup = { ...config, ...(config.description ? { description: new Uint8Array(config.description) } : {}) };
  try {
    if (!(await VideoDecoder.isConfigSupported(setup)).supported) return null;
  } catch { // a codec whose name this browser does not know
    return null;
  }
  const wanted = new Set(frames), found = new Map(), making = [];
  let failure = null;
  const decoder = new VideoDecoder({
    output(frame) {
      if (wanted.has(frame.timestamp)) making.push(createImageBitmap(frame).then((picture) => found.set(frame.timestamp, picture)).finally(() => frame.close()));
      else frame.close();
    },
    error(error) { failure = error; },
  });
  try {
    decoder.configure(setup);
    let place = 4 + size;
    packets.forEach(([bytes, number, isKey], i) => {
      const timestamp = number < 0 ? -1 - i : number; // a frame that is not shown
      decoder.decode(new EncodedVideoChunk({ type: isKey ? "key" : "delta", timestamp, data: new Uint8Array(buffer, place, bytes) }));
      place += bytes;
    });
    await decoder.flush();
    await Promise.all(making);
  } catch (error) {
    failure = failure ?? error;
  } finally {
    if (decoder.state !== "closed") decoder.close();
  }
  if (failure || signal.aborted || frames.some((number) => !found.has(number))) {
    for (const picture of found.values()) picture.close();
    return null;
  }
  return frames.map((number) => found.get(number));
}
