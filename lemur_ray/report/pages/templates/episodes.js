const STEP=200,$=i=>document.getElementById(i);let D,S,shown=STEP,tasks;
const [RUN,TASK,CAT,END,SCORE,TURNS,SECONDS,IN,OUT,EPOCH,PAGE,ID]=Array(12).keys();
const COLUMNS=[["task",r=>r[TASK]],["kind",r=>D.categories[r[CAT]]],["run",r=>D.runs[r[RUN]].name],
["end",r=>D.outcomes[r[END]].name],["score",r=>r[SCORE]],["turns",r=>r[TURNS]],["seconds",r=>r[SECONDS]],
["tokens in",r=>r[IN]],["tokens out",r=>r[OUT]]];
const FIELDS=["view","q","benchmark","run","kind","end","sort","a","b","only"];
function el(tag,text,cls){const n=document.createElement(tag);if(text!==undefined)n.textContent=text;
if(cls)n.className=cls;return n}
function mark(r){const o=D.outcomes[r[END]];return !o.scored?"miss":o.name==="solved"?"ok":r[SCORE]?"part":""}
function address(r,other){return D.pages[r[PAGE]]+"#"+r[ID]+(other&&other[PAGE]===r[PAGE]?"/"+other[ID]:"")}
function read(){const p=new URLSearchParams(location.hash.slice(1));S={};for(const f of FIELDS)S[f]=p.get(f)||""}
function write(){const p=new URLSearchParams();for(const f of FIELDS)if(S[f])p.set(f,S[f]);
history.replaceState(null,"","#"+p)}
function choose(id,names,every){const s=$(id);s.replaceChildren(...(every?[new Option(every,"")]:[]),
...names.map(n=>new Option(n[0],n[1])));s.value=S[id];if(s.value!==S[id])s.value=every?"":(names[0]||["",""])[1]}
function one(){return S.benchmark||D.benchmarks.length===1}
function runs(){return D.runs.map((r,i)=>[r,i]).filter(([r])=>!S.benchmark||r.benchmark===S.benchmark)}
function controls(){choose("benchmark",D.benchmarks.map(b=>[b,b]),"every benchmark");
const here=runs().map(([r,i])=>[(one()?"":r.benchmark+": ")+r.name,String(i)]);
choose("run",here,"every run");choose("a",here,"first run");choose("b",here,"second run");
const kinds=new Set(D.rows.filter(r=>!S.benchmark||D.runs[r[RUN]].benchmark===S.benchmark).map(r=>r[CAT]));
choose("kind",[...kinds].map(k=>[D.categories[k],D.categories[k]]).sort(),"every kind");
choose("end",D.outcomes.map(o=>[o.name.replaceAll("_"," "),o.name]),"every end");
choose("only",[["where they differ","differ"],["only the first solved","a"],["only the second solved","b"]],
"all tasks");
$("q").value=S.q;for(const v of ["list","matrix"])$(v).setAttribute("aria-pressed",String((S.view||"list")===v));
for(const i of ["a","b","only"])$(i).hidden=S.view!=="matrix";
for(const i of ["run","end"])$(i).hidden=S.view==="matrix"}
function fits(r){const run=D.runs[r[RUN]],q=S.q.toLowerCase();return (!S.benchmark||run.benchmark===S.benchmark)&&
(!S.kind||D.categories[r[CAT]]===S.kind)&&(S.view==="matrix"||((S.run===""||String(r[RUN])===S.run)&&
(!S.end||D.outcomes[r[END]].name===S.end)))&&
(!q||[r[TASK],D.categories[r[CAT]],run.name,run.policy,D.outcomes[r[END]].name].some(t=>t.toLowerCase().includes(q)))}
function row(r){const tr=el("tr"),link=el("a",r[TASK]+(r[EPOCH]?` (epoch ${r[EPOCH]})`:""));link.href=address(r);
const first=el("td");first.append(link);tr.append(first);
COLUMNS.slice(1).forEach(([name,of],i)=>{const v=of(r),number=i>2;const td=el("td",v===null?"\u2013":
name==="seconds"?v.toFixed(1):name==="score"?String(+v.toFixed(3)):number?v.toLocaleString("en"):
name==="end"?v.replaceAll("_"," "):v,number?"n":"");
if(name==="end"){td.textContent="";td.append(el("span",v.replaceAll("_"," "),"end "+mark(r)))}tr.append(td)});return tr}
function list(rows){const down=S.sort.startsWith("-"),name=S.sort.replace("-",""),by=COLUMNS.find(c=>c[0]===name);
if(by)rows.sort((x,y)=>{const a=by[1](x),b=by[1](y);const c=a===b?0:a===null?1:b===null?-1:
typeof a==="string"?a.localeCompare(b,"en",{numeric:true}):a-b;return down?-c:c});
const head=el("tr"),arrow=down?" \u2193":" \u2191";
COLUMNS.forEach(([n],i)=>{const th=el("th","",i>3?"n":""),b=el("button",n+(n===name?arrow:""),"sort");
b.onclick=()=>{S.sort=name===n&&!down?"-"+n:n;draw()};th.append(b);head.append(th)});
return [head,rows.map(r=>()=>row(r))]}
function matrix(rows){const here=runs().filter(([,i])=>rows.some(r=>r[RUN]===i)),table=new Map();
const A=S.a===""?-1:+S.a,B=S.b===""?-1:+S.b;
for(const r of rows){const k=D.runs[r[RUN]].benchmark+"\n"+r[TASK];if(!table.has(k))table.set(k,new Map());
const t=table.get(k);if(!t.has(r[RUN]))t.set(r[RUN],[]);t.get(r[RUN]).push(r)}
const share=rows=>rows.filter(r=>mark(r)==="ok").length/(rows.filter(r=>mark(r)!=="miss").length||1);
const solved=(t,i)=>share(t.get(i)||[]);
let lines=[...table.entries()];
if(S.only&&A>=0&&B>=0)lines=lines.filter(([,t])=>{if(!t.has(A)||!t.has(B))return false;
const x=solved(t,A),y=solved(t,B);return S.only==="a"?x>y:S.only==="b"?y>x:x!==y});
const head=el("tr");head.append(el("th","task"));here.forEach(([r,i])=>head.append(el("th",
(one()?"":r.benchmark+": ")+r.name+(i===A?" (first)":i===B?" (second)":""))));head.append(el("th",""));
return [head,lines.map(([k,t])=>()=>{const tr=el("tr"),[bench,task]=k.split("\n");
tr.append(el("td",one()?task:bench+" \u00b7 "+task));
for(const [,i] of here){const td=el("td"),g=el("div","","grid-of");for(const r of t.get(i)||[]){
const a=el("a","",mark(r));a.href=address(r);a.title=D.outcomes[r[END]].name.replaceAll("_"," ")+`, ${r[TURNS]} turns`;
a.setAttribute("aria-label",a.title);g.append(a)}td.append(g);tr.append(td)}
const td=el("td"),ids=[...t.keys()],x=A>=0?A:ids[0],y=B>=0?B:ids.find(i=>i!==x);
if(t.has(x)&&t.has(y)&&x!==y){const first=t.get(x)[0],second=t.get(y).find(r=>r[EPOCH]===first[EPOCH])||t.get(y)[0];
if(first[PAGE]===second[PAGE]){const a=el("a","side by side");a.href=address(first,second);td.append(a)}}
else if((t.get(x)||[]).length>1&&ids.length===1){const [p,q]=t.get(x),a=el("a","side by side");
a.href=address(p,q);td.append(a)}
tr.append(td);return tr})]}
function draw(keep){if(!keep)shown=STEP;write();controls();const rows=D.rows.filter(fits);
const [head,lines]=S.view==="matrix"?matrix(rows):list(rows);
$("head").replaceChildren(head);$("rows").replaceChildren(...lines.slice(0,shown).map(f=>f()));
const n=x=>x.toLocaleString("en"),solved=rows.filter(r=>mark(r)==="ok").length;
$("count").textContent=`${n(rows.length)} of ${n(D.rows.length)} episodes, ${n(solved)} of them solved`+
(S.view==="matrix"?`; ${n(lines.length)} tasks`:"")+(lines.length>shown?`; the first ${n(shown)} are shown`:"");
$("more").hidden=lines.length<=shown}
function go(){const name=location.hash.slice(1);if(/^e[0-9a-f]{16}/.test(name)){const [x,y]=name.split("/");
const by=i=>D.rows.find(r=>r[ID]===i),of=i=>by(i)||by(i.split("-")[0]),r=of(x);if(r){location.replace(address(r,y?of(y):null));return}}read();draw()}
addEventListener("DOMContentLoaded",()=>{D=JSON.parse($("data").textContent);
for(const f of ["q","benchmark","run","kind","end","a","b","only"])
$(f).addEventListener(f==="q"?"input":"change",()=>{S[f]=$(f).value;
if(f==="benchmark")S.run=S.kind=S.a=S.b="";draw()});
for(const v of ["list","matrix"])$(v).onclick=()=>{S.view=v==="list"?"":v;draw()};
$("more").onclick=()=>{shown+=5*STEP;draw(true)};go()});
addEventListener("hashchange",go);
